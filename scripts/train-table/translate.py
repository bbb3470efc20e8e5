#!/usr/bin/env python3
"""Adds words of other languages to a table: their sentence should point where the teacher points for its English original.

    translate.py --table english.bin --terms sentences.terms --vectors vectors.npy --pairs parallel.tsv \\
        --pair-terms parallel.terms --pair-vectors parallel.npy --out table.int8

The rows that the table has already stay as they are, to the bit; the new ones are fitted to what those leave open. The first
three are what the table was fitted to, by which its axes are known; `parallel.npy` are the vectors of the English sides, each once,
with the sentences beside them as `teach.py` writes them. No chance is involved.
"""
import argparse
import collections
import re

import numpy

import fit

CYRILLIC, KANA, FOREIGN = re.compile("[а-яё]"), re.compile("[\u3040-\u30ff]"), re.compile("[а-яё\u3040-\u30ff\u3400-\u9fff]")
# In how many sentences a term must be: a word of Russian, one in katakana, a pair of ideographs that was seen by itself or a single
# one, and any other pair, since those are often no words, and there are many of them.
LEAST_WORD, LEAST_KATAKANA, LEAST_SEEN, LEAST_PAIR = 2, 3, 4, 14
KATAKANA, ALONE = re.compile("[\u30a1-\u30ff]+"), re.compile("(?<![\u3400-\u9fff])[\u3400-\u9fff]{2}(?![\u3400-\u9fff])")
RIDGE, STEPS = 2.0, (10, 5)
# A term is of a language when so many of its sentences are.
SHARE = 0.05


def axes_of(vectors, lines, words, table):
    """Where the table's dimensions point among the teacher's. Which end of an axis is the positive one is up to the
    library that found it, so it is asked of the table."""
    square = numpy.zeros((vectors.shape[1], vectors.shape[1]))
    for start in range(0, len(vectors), 50000):
        part = vectors[start : start + 50000].astype(numpy.float32)
        square += part.T @ part
    axes = numpy.linalg.eigh(square)[1][:, ::-1][:, : table.shape[1]].astype(numpy.float32)
    some = slice(0, None, 6)
    fitted = fit.matrix(lines[some], {word: row for row, word in enumerate(words)}) @ table
    signs = numpy.sign((fitted * (vectors[some].astype(numpy.float32) @ axes)).sum(0))
    return axes * signs, float(numpy.linalg.norm(fitted, axis=1).mean())


def vocabulary(pairs, lines, known):
    """The new terms in order, and in which languages each was seen how often."""
    seen = collections.defaultdict(collections.Counter)
    for (language, _, _), line in zip(pairs, lines):
        for term in set(line):
            if FOREIGN.search(term) and len(term) <= 24 and term not in known:
                seen[term][language] += 1
    alone = collections.Counter(pair for _, _, text in pairs for pair in ALONE.findall(text))

    def least(term):
        if CYRILLIC.search(term):
            return LEAST_WORD
        if KATAKANA.fullmatch(term):
            return LEAST_KATAKANA
        return LEAST_SEEN if len(term) == 1 or alone[term] > 1 else LEAST_PAIR

    chosen = (term for term, count in seen.items() if sum(count.values()) >= least(term))
    return sorted(chosen, key=lambda term: term.encode()), seen


def without_parts(line):
    """Without what is only a part of a longer word in katakana."""
    words = [term for term in line if KATAKANA.fullmatch(term)]
    part = lambda term: any(len(word) > len(term) and term in word for word in words)
    return [term for term in line if not (KATAKANA.fullmatch(term) and part(term))]


def languages(term, seen):
    if CYRILLIC.search(term):
        return {"ru"}
    if KANA.search(term):
        return {"ja"}
    return {name for name in ("zh", "ja") if seen[name] >= SHARE * sum(seen.values())}


def neighbours(table, spoken, most, least):
    """As in `fit`, but each among the words of its own languages."""
    unit = table / numpy.maximum(numpy.linalg.norm(table, axis=1, keepdims=True), 1e-6)
    found = [{} for _ in spoken]
    for language in ("ru", "zh", "ja"):
        rows = numpy.array([row for row, names in enumerate(spoken) if language in names])
        for start in range(0, len(rows), 1000):
            cosine = unit[rows[start : start + 1000]] @ unit[rows].T
            for place, values in enumerate(cosine, start):
                values[place] = 0
                best = numpy.argpartition(-values, most)[:most]
                found[rows[place]] |= {int(rows[one]): float(values[one]) for one in best if values[one] >= least}
    near = numpy.zeros((len(spoken), most), fit.NEAR)
    for row, others in enumerate(found):
        for place, other in enumerate(sorted(others, key=lambda one: (-others[one], one))[:most]):
            near[row, place] = other, round(others[other] * 255)
    return near


def main():
    parser = argparse.ArgumentParser()
    for name in ("table", "terms", "vectors", "pairs", "pair-terms", "pair-vectors", "out"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    lines_of = lambda path: open(path, encoding="utf-8").read().split("\n")[:-1]
    old, english, old_near = fit.read(arguments.table)
    vectors = numpy.load(arguments.vectors, mmap_mode="r")
    axes, length = axes_of(vectors, [line.split() for line in lines_of(arguments.terms)], old, english)
    originals = {line: place for place, line in enumerate(lines_of(arguments.pair_vectors + ".txt"))}
    targets = numpy.load(arguments.pair_vectors).astype(numpy.float32) @ axes
    targets /= numpy.linalg.norm(targets, axis=1, keepdims=True)
    pairs = [line.split("\t") for line in lines_of(arguments.pairs)]
    lines = [without_parts(line.split()) for line in lines_of(arguments.pair_terms)]
    assert len(pairs) == len(lines)
    new, seen = vocabulary(pairs, lines, set(old))
    place = {word: row for row, word in enumerate([*old, *new])}
    ours = {word for word in new}
    kept = [row for row, line in enumerate(lines) if pairs[row][1] in originals and not ours.isdisjoint(line)]
    given = fit.matrix([lines[row] for row in kept], place)
    wanted = targets[[originals[pairs[row][1]] for row in kept]]
    said, given = given[:, : len(old)] @ english, given[:, len(old) :].tocsr()
    table, lengths = None, numpy.full(len(kept), length, numpy.float32)
    for steps in STEPS:
        table = fit.solve(given, wanted * lengths[:, None] - said, RIDGE, steps, table)
        fitted = given @ table + said
        norms = numpy.linalg.norm(fitted, axis=1)
        print("mean cosine", float(((fitted * wanted).sum(1) / numpy.maximum(norms, 1e-6)).mean()), flush=True)
        lengths = numpy.clip(norms / norms.mean(), 0.5, 2.0) * norms.mean()
    near = neighbours(table, [languages(word, seen[word]) for word in new], fit.NEIGHBOURS, fit.NEAREST)
    near["row"][near["near"] > 0] += len(old)
    words = [*old, *new]
    order = sorted(range(len(words)), key=lambda row: words[row].encode())
    moved = numpy.argsort(order)
    near = numpy.concatenate([old_near, near])
    near["row"] = numpy.where(near["near"] > 0, moved[near["row"]], 0)
    print("new", {name: sum(name in languages(word, seen[word]) for word in new) for name in ("ru", "zh", "ja")})
    fit.write(arguments.out, [words[row] for row in order], numpy.concatenate([english, table])[order], near[order])


if __name__ == "__main__":
    main()
