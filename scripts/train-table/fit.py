#!/usr/bin/env python3
"""Fits the table: a sentence is the sum of its terms' rows, and should point where the teacher points.

    fit.py --terms sentences.terms --vectors vectors.npy --out english.bin

A ridge regression, solved by conjugate gradients: no chance is involved, so that the same input gives the
same table. Then rows are scaled to int8.
"""
import argparse
import collections
import hashlib
import re
import struct

import numpy
import scipy.sparse

# How many neighbours of a row are kept, and how near they must be.
NEIGHBOURS, NEAREST = 8, 0.4
NEAR = [("row", "<u2"), ("near", "u1")]
PRIVATE = re.compile("[\ue000-\ue07f]")


def vocabulary(lines, most):
    seen = collections.Counter()
    for line in lines:
        seen.update(set(line))
    plain = (term for term in seen if len(term) <= 24 and not PRIVATE.search(term) and not term.isdigit())
    chosen = sorted(plain, key=lambda term: (-seen[term], term))[:most]
    return sorted(chosen, key=lambda term: term.encode()), seen


def matrix(lines, place):
    rows, columns, values = [], [], []
    for row, line in enumerate(lines):
        inside = sorted({place[term] for term in line if term in place})
        rows += [row] * len(inside)
        columns += inside
        values += [max(len(inside), 1) ** -0.5] * len(inside)
    shape = (len(lines), len(place))
    return scipy.sparse.csr_matrix((numpy.array(values, numpy.float32), (rows, columns)), shape)


def solve(given, wanted, ridge, steps, start=None):
    """Conjugate gradients for (X'X + ridge) E = X'T, every column by itself."""
    across = given.T.tocsr()
    apply = lambda table: across @ (given @ table) + ridge * table
    scale = 1 / (numpy.asarray(across.multiply(across).sum(1)) + ridge).astype(numpy.float32)
    target = across @ wanted
    table = numpy.zeros_like(target) if start is None else start.copy()
    rest = target - apply(table)
    eased = scale * rest
    step = eased.copy()
    old = (rest * eased).sum(0)
    for _ in range(steps):
        applied = apply(step)
        alpha = old / numpy.maximum((step * applied).sum(0), 1e-12)
        table += alpha * step
        rest -= alpha * applied
        eased = scale * rest
        new = (rest * eased).sum(0)
        step = eased + (new / numpy.maximum(old, 1e-12)) * step
        old = new
    return table


def main():
    parser = argparse.ArgumentParser()
    for name in ("terms", "vectors", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rows", type=int, default=30000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--ridge", type=float, default=1.0)
    arguments = parser.parse_args()
    lines = [line.split() for line in open(arguments.terms, encoding="utf-8").read().split("\n")[:-1]]
    vectors = numpy.load(arguments.vectors)
    assert len(lines) == len(vectors)
    words, seen = vocabulary(lines, arguments.rows)
    place = {word: row for row, word in enumerate(words)}
    given = matrix(lines, place)
    kept = numpy.asarray((given != 0).sum(1)).ravel() > 0
    given, vectors = given[kept], vectors[kept].astype(numpy.float32)
    _, axes = numpy.linalg.eigh(vectors.T @ vectors)
    wanted = vectors @ axes[:, ::-1][:, : arguments.width]
    wanted /= numpy.linalg.norm(wanted, axis=1, keepdims=True)
    table = None
    # Only the direction counts: in each round what was fitted sets the length that is asked for.
    length = numpy.ones(len(wanted), numpy.float32)
    for steps in (8, 4):
        table = solve(given, wanted * length[:, None], arguments.ridge, steps, table)
        fitted = given @ table
        norms = numpy.linalg.norm(fitted, axis=1)
        cosine = (fitted * wanted).sum(1) / numpy.maximum(norms, 1e-6)
        print("mean cosine", float(cosine.mean()), flush=True)
        length = numpy.clip(norms / norms.mean(), 0.5, 2.0) * norms.mean()
    write(arguments.out, words, table)


def neighbours(table, most, least):
    """For each row the rows that point nearest the same way, and how near, up to 255."""
    unit = table / numpy.maximum(numpy.linalg.norm(table, axis=1, keepdims=True), 1e-6)
    near = numpy.zeros((len(unit), most), NEAR)
    for start in range(0, len(unit), 1000):
        cosine = unit[start : start + 1000] @ unit.T
        for row, values in enumerate(cosine, start):
            values[row] = 0
            best = numpy.argpartition(-values, most)[:most]
            best = best[numpy.lexsort((best, -values[best]))]
            best = best[values[best] >= least]
            near[row, : len(best)]["row"] = best
            near[row, : len(best)]["near"] = numpy.rint(values[best] * 255)
    return near


def write(path, words, table, near=None):
    """Magic, rows, width, neighbours of each; where each word ends; each row's scale; the neighbours;
    the words; the rows."""
    scales = numpy.maximum(numpy.abs(table).max(1), 1e-6) / 127
    rows = numpy.rint(table / scales[:, None]).astype(numpy.int8)
    ends = numpy.cumsum([len(word.encode()) for word in words]).astype("<u4")
    if near is None:
        near = neighbours(rows.astype(numpy.float32), NEIGHBOURS, NEAREST)
    with open(path, "wb") as out:
        out.write(b"hobtab02" + struct.pack("<III", *table.shape, NEIGHBOURS))
        out.write(ends.tobytes() + scales.astype("<f4").tobytes() + near.tobytes())
        out.write("".join(words).encode() + rows.tobytes())
    print(table.shape, hashlib.sha256(open(path, "rb").read()).hexdigest())


def read(path):
    """The words, the rows and the neighbours of a table."""
    content = open(path, "rb").read()
    count, width, kept = struct.unpack("<III", content[8:20])
    parts, start = [], 20
    for kind, each in (("<u4", 1), ("<f4", 1), (NEAR, kept)):
        parts.append(numpy.frombuffer(content, kind, count * each, start))
        start += parts[-1].nbytes
    ends, scales, near = parts
    words = [content[start + first : start + last].decode() for first, last in zip([0, *ends[:-1]], ends)]
    rows = numpy.frombuffer(content, numpy.int8, count * width, start + int(ends[-1]))
    table = rows.reshape(count, width).astype(numpy.float32) * scales[:, None]
    return words, table, near.reshape(count, kept)


if __name__ == "__main__":
    main()
