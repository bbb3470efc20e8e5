#!/usr/bin/env python3
"""How well recall finds the evidence on every family of data, beside plain FTS5, in one table.

    evaluate.py --hob target/dist/hob [--data DATA] [--json OUT]

`families.py` says what DATA has; without it only `coding-history` is measured. any@k: a turn of the evidence is among the first k
hits. "budget": it is among the hits of an agent's usual question, 1,500 tokens. "sessions": all sessions of the evidence are
among the first five. "nothing": the question is asked of the next history of its family, and no hit has a score of .3 or more.
"right" and "wrong" are the AUROC and the calibration error of the first hit's score. ± is half of a 95% interval of the difference
to FTS5 in any@5, by a paired bootstrap.
"""
import argparse, json, pathlib, random, sys

import families


def auroc(scores, right):
    good, bad = [s for s, r in zip(scores, right) if r], [s for s, r in zip(scores, right) if not r]
    wins = sum((g > b) + (g == b) / 2 for g in good for b in bad)
    return wins / max(len(good) * len(bad), 1)


def calibration_error(scores, right):
    bins = [[] for _ in range(10)]
    for score, ok in zip(scores, right):
        bins[min(int(score * 10), 9)].append((score, ok))
    return sum(abs(sum(s for s, _ in b) - sum(r for _, r in b)) for b in bins if b) / max(len(scores), 1)


def rows_of(binary, projects):
    rows = []
    for batch in families.in_batches(projects):
        hob = families.Hob(binary, batch)
        try:
            for number, project in enumerate(batch):
                fts5, other = families.Fts5(project), batch[(number + 1) % len(batch)]
                for asked in project.questions:
                    if not asked.gold:
                        continue
                    ten = hob.ask(project, asked.text, limit=10, budget_tokens=families.EVERYTHING)
                    wide = hob.ask(project, asked.text, limit=50, budget_tokens=families.EVERYTHING)
                    usual, found = hob.ask(project, asked.text), fts5.ask(asked.text, 50)
                    row = {"question": asked.text, "kind": asked.kind}
                    for name, hits, budget, far in (("hob", [h["place"] for h in ten], [h["place"] for h in usual], [h["place"] for h in wide]),
                                                    ("fts5", found[:10], fts5.within_budget(found), found)):
                        for k in (1, 5, 10):
                            row[f"{name} any@{k}"] = any(place in asked.gold for place in hits[:k])
                        row[f"{name} budget"] = any(place in asked.gold for place in budget)
                        sessions = list(dict.fromkeys(place[0] for place in far if place))
                        row[f"{name} sessions"] = asked.sessions <= set(sessions[:5]) if asked.sessions else None
                    row["score"] = ten[0]["score"] if ten else 0.0
                    if other is not project:
                        row["elsewhere"] = max((hit["score"] for hit in hob.ask(other, asked.text)), default=0.0)
                    rows.append(row)
        finally:
            hob.close()
    return rows


def mean(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values) if values else float("nan")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--hob", default="target/dist/hob")
    a.add_argument("--data", help="where the other families lie")
    a.add_argument("--json", help="write all rows")
    a = a.parse_args()
    everything = {}
    print(f"{'family':15} {'n':>4}  {'any@1':>13} {'any@5':>13} {'±':>4} {'any@10':>13} {'budget':>13} {'sessions':>13} {'nothing':>7} {'right':>5} {'wrong':>5}    (Hob, FTS5)")
    for name, projects in families.load(a.data).items():
        rows = everything[name] = rows_of(a.hob, projects)
        both = lambda figure: f"{mean(r[f'hob {figure}'] for r in rows):6.3f} {mean(r[f'fts5 {figure}'] for r in rows):6.3f}"
        pairs, chance = [r["hob any@5"] - r["fts5 any@5"] for r in rows], random.Random(1)
        means = sorted(mean(chance.choices(pairs, k=len(pairs))) for _ in range(2000))
        right = [r["hob any@1"] for r in rows]
        scores = [r["score"] for r in rows]
        nothing = mean(r["elsewhere"] < .3 for r in rows if "elsewhere" in r)
        print(f"{name:15} {len(rows):4}  {both('any@1')} {both('any@5')} {(means[1949] - means[50]) / 2:4.2f} {both('any@10')} {both('budget')} {both('sessions')} "
              f"{nothing:7.2f} {auroc(scores, right):5.2f} {calibration_error(scores, right):5.2f}", flush=True)
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(everything))


if __name__ == "__main__":
    sys.exit(main())
