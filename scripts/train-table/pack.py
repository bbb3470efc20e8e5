#!/usr/bin/env python3
"""Packs a table of int8 into the file that Hob contains: four bits for each number.

    pack.py --table table.int8 --out crates/memory/data/table.bin

All numbers share 16 levels, which are fitted to them (Lloyd's algorithm), each row divided by its root mean
square. A row keeps the scale that brings its levels nearest to what it was. No chance is involved. Prints the mean cosine
between the rows before and after.
"""
import argparse
import hashlib
import struct

import numpy

import fit

LEVELS, ROUNDS = 16, 60


def levels_of(values):
    """Sixteen levels with the least squared distance to the values. Values are counted in fine bins first."""
    counts, edges = numpy.histogram(values, 40_000)
    centres = (edges[:-1] + edges[1:]) / 2
    sums = numpy.concatenate([[0], numpy.cumsum(counts)])
    weighted = numpy.concatenate([[0], numpy.cumsum(counts * centres)])
    levels = centres[numpy.searchsorted(sums[1:], (numpy.arange(LEVELS) + 0.5) / LEVELS * sums[-1])]
    for _ in range(ROUNDS):
        bounds = numpy.searchsorted(centres, (levels[:-1] + levels[1:]) / 2)
        first, last = [0, *bounds], [*bounds, len(centres)]
        number = numpy.maximum(sums[last] - sums[first], 1)
        levels = (weighted[last] - weighted[first]) / number
    return levels.astype(numpy.float32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", required=True)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    words, table, near = fit.read(arguments.table)
    size = numpy.sqrt((table**2).mean(1, keepdims=True))
    unit = table / numpy.maximum(size, 1e-9)
    levels = levels_of(unit)
    codes = numpy.searchsorted((levels[:-1] + levels[1:]) / 2, unit).astype(numpy.uint8)
    packed = levels[codes]
    scales = (table * packed).sum(1) / numpy.maximum((packed**2).sum(1), 1e-9)
    cosine = (table * packed).sum(1) / numpy.maximum(numpy.linalg.norm(table, axis=1) * numpy.linalg.norm(packed, axis=1), 1e-9)
    print("mean cosine", float(cosine.mean()), "least", float(cosine.min()))
    ends = numpy.cumsum([len(word.encode()) for word in words]).astype("<u4")
    with open(arguments.out, "wb") as out:
        out.write(b"hobtab03" + struct.pack("<III", *table.shape, near.shape[1]) + levels.astype("<f4").tobytes())
        out.write(ends.tobytes() + scales.astype("<f4").tobytes() + near.tobytes())
        out.write("".join(words).encode() + (codes[:, ::2] | codes[:, 1::2] << 4).tobytes())
    print(table.shape, hashlib.sha256(open(arguments.out, "rb").read()).hexdigest())


if __name__ == "__main__":
    main()
