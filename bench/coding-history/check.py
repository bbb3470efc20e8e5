#!/usr/bin/env python3
"""Checks the set itself: every id exists, evidence texts are one of a kind, sizes and kinds are as promised, and a plain BM25
(stop words and a crude stem, no structure, dates unknown) neither fails nor suffices.

    check.py [--half tune|held-out] [--review]

`--review` prints each question with its evidence and the best turns that are not, to be read by a person: no other turn may
answer as well.
"""
import argparse, collections, json, math, pathlib, re

HERE = pathlib.Path(__file__).parent
LEAST = {"exact": 60, "paraphrase": 50, "decision": 25, "temporal": 15, "correction": 15, "russian": 20, "chinese": 20, "japanese": 20, "cross": 3}
STOP = set("""a about after all an and any are as at be been by can could did do does for from had has have how i if in into is it its
me of on or our out so than that the their them then there they this to up us was we were what when where which while who why will with
would you your и в на с не что как по а за из для мы у к от если это при то же бы о до или кто где почему когда какой какие какая""".split())
CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


def load(name):
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


def words(text):
    out = []
    for word in re.findall(r"[\u3040-\u30ff\u3400-\u9fff]+|[^\W\u3040-\u30ff\u3400-\u9fff]+", text.lower()):
        if CJK.match(word):
            out += [word[i:i + 2] for i in range(max(1, len(word) - 1))]
        elif word not in STOP:
            out.append(re.sub(r"(?<=...)(ing|ed|es|s)$", "", word) if word.isascii() else word)
    return out


class Bm25:
    def __init__(self, turns, k1=1.2, b=.75):
        self.turns, self.k1, self.b = turns, k1, b
        self.bags = [collections.Counter(words(t["text"])) for t in turns]
        self.mean = sum(sum(bag.values()) for bag in self.bags) / len(turns)
        found = collections.Counter(word for bag in self.bags for word in bag)
        self.idf = {w: math.log(1 + (len(turns) - n + .5) / (n + .5)) for w, n in found.items()}

    def rank(self, query):
        terms, scores = set(words(query)), []
        for i, bag in enumerate(self.bags):
            norm = self.k1 * (1 - self.b + self.b * sum(bag.values()) / self.mean)
            scores.append((sum(self.idf[t] * bag[t] * (self.k1 + 1) / (bag[t] + norm) for t in terms if t in bag), i))
        scores.sort(key=lambda s: (-s[0], s[1]))
        return [(self.turns[i], score) for score, i in scores]


def table(rows):
    """rows: (kind, best rank or None). Prints any@1, any@5, any@10 and mrr@10 for each kind."""
    print(f"{'kind':14}{'n':>5}{'any@1':>8}{'any@5':>8}{'any@10':>8}{'mrr@10':>8}")
    groups = collections.defaultdict(list)
    for kind, rank in rows:
        groups[kind].append(rank)
    for kind, ranks in sorted(groups.items()):
        at = [sum(r is not None and r < k for r in ranks) / len(ranks) for k in (1, 5, 10)]
        mrr = sum(1 / (r + 1) for r in ranks if r is not None and r < 10) / len(ranks)
        print(f"{kind:14}{len(ranks):>5}" + "".join(f"{v:>8.3f}" for v in (*at, mrr)))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--half", choices=["tune", "held-out"])
    arguments.add_argument("--review", action="store_true")
    arguments = arguments.parse_args()
    turns = load("turns.jsonl")
    by_id = {t["id"]: t for t in turns}
    assert len(by_id) == len(turns), "two turns with one id"
    everything = load("questions-tune.jsonl") + load("questions-held-out.jsonl")
    assert len({q["id"] for q in everything}) == len(everything), "two questions with one id"
    kinds = collections.Counter(q["kind"] for q in everything)
    for kind, least in LEAST.items():
        assert kinds[kind] >= least, f"{kind}: {kinds[kind]} of {least}"
    texts = collections.Counter((t["project"], t["text"].strip()) for t in turns)
    for question in everything:
        assert question["evidence"], question["id"]
        for turn in question["evidence"]:
            assert by_id[turn]["project"] == question["project"], question["id"]
            assert texts[question["project"], by_id[turn]["text"].strip()] == 1, f"{turn}: its text is not one of a kind"
    sizes = sorted(len(t["text"].split()) for t in turns if not CJK.search(t["text"]))
    print(f"{len(turns)} turns, words: median {sizes[len(sizes) // 2]}, longest {sizes[-1]}; {len(everything)} questions")
    index = {p: Bm25([t for t in turns if t["project"] == p]) for p in sorted({t["project"] for t in turns})}
    rows = []
    for question in load(f"questions-{arguments.half}.jsonl") if arguments.half else everything:
        ranked = index[question["project"]].rank(question["question"])
        rank = next(i for i, (t, s) in enumerate(ranked) if t["id"] in question["evidence"])
        rank = rank if ranked[rank][1] > 0 else None
        rows.append((question["kind"], rank))
        if question["kind"] not in ("cross",):
            rows.append(("all but cross", rank))
        if arguments.review:
            print(f"\n{question['id']}: {question['question']}  [rank {rank}]")
            for turn in question["evidence"]:
                print(f"   * {by_id[turn]['ts'][:10]} {by_id[turn]['text'][:230]!r}")
            for turn, score in [r for r in ranked if r[0]["id"] not in question["evidence"]][:4]:
                print(f"     {turn['ts'][:10]} {score:4.1f} {turn['text'][:150]!r}")
    table(rows)


if __name__ == "__main__":
    main()
