#!/usr/bin/env python3
"""Fits the weights of the ranking and of the scores on all families, and with each group of families left out.

    fit.py --hob target/dist/hob --data DATA      (wants numpy and scipy)

Every question is asked with `explain`, so that all candidates come back with their features. The weights of the ranking maximise the
likelihood that a turn of the evidence is drawn first (softmax over the candidates); families count alike. The weights in
FIXED are not fitted: one family alone has what they are about, or (coverage) what is fitted without chats is too great for them. The scores are a logistic regression on the first ten hits, and on
questions that are asked of another history of their family, where every hit is wrong. Prints both as they stand in
`crates/memory/src/recall/weights.rs`, and any@1, any@5 and any@10 of each family, fitted on all and fitted without its group.
"""
import argparse, sys

import numpy as np
from scipy.optimize import minimize

import families

FIXED = {"first_named_speaker": 4.0, "other_named_speaker": 2.0, "says_changed": 0.3, "boilerplate": -1.5, "coverage": 1.5}
RIDGE = 1e-3
ELSEWHERE = 0.3  # what a question asked elsewhere counts
SCORE = ("constant", "coverage", "best_cosine_nearby", "place", "lead")
COMPARED_HITS, MAX_LEAD = 5, 6.0  # as in weights.rs


class Asked:
    """The candidates of one question: their features, and which of them are evidence."""

    def __init__(self, hits, gold):
        self.names = sorted(hits[0]["features"])
        self.x = np.array([[hit["features"][name] for name in self.names] for hit in hits])
        self.gold = np.array([hit["place"] in gold for hit in hits])

    def column(self, name):
        return self.x[:, self.names.index(name)]

    def sums(self, weights):
        return sum(weight * self.column(name) for name, weight in weights.items())


def ask(binary, projects):
    """The questions of a family, asked of their own history and of the next one."""
    own, elsewhere = [], []
    explain = {"limit": 500, "budget_tokens": families.EVERYTHING, "min_score": 0, "explain": True}
    for batch in families.in_batches(projects):
        hob = families.Hob(binary, batch)
        try:
            for number, project in enumerate(batch):
                other = batch[(number + 1) % len(batch)]
                for question in project.questions:
                    if question.gold and (hits := hob.ask(project, question.text, **explain)):
                        own.append(Asked(hits, question.gold))
                    if other is not project and (hits := hob.ask(other, question.text, **explain)):
                        elsewhere.append(Asked(hits, set()))
        finally:
            hob.close()
    return own, elsewhere


def weight_of(name, names):
    """A family's share: groups count alike, and the families of a group."""
    return 1 / sum(families.GROUPS[other] == families.GROUPS[name] for other in names)


def fit_ranking(asked, names):
    fitted = [n for n in next(iter(asked.values()))[0].names if n not in FIXED]
    questions = [(one, weight_of(name, names) / len(asked[name])) for name in names for one in asked[name] if one.gold.any()]
    rows = np.concatenate([np.stack([one.column(n) for n in fitted], 1) for one, _ in questions])
    fixed, gold = np.concatenate([one.sums(FIXED) for one, _ in questions]), np.concatenate([one.gold for one, _ in questions])
    counts = np.array([len(one.gold) for one, _ in questions])
    starts, question = np.concatenate([[0], np.cumsum(counts)[:-1]]), np.repeat(np.arange(len(questions)), counts)
    weights = np.array([weight for _, weight in questions])
    weights, scale = weights / weights.sum(), rows.std(0) + 1e-9
    rows = rows / scale

    def loss(b):
        sums = rows @ b + fixed
        e = np.exp(sums - np.maximum.reduceat(sums, starts)[question])
        all_of, gold_of = np.add.reduceat(e, starts), np.add.reduceat(e * gold, starts) + 1e-300
        slope = e / all_of[question] - e * gold / gold_of[question]
        return (weights * (np.log(all_of) - np.log(gold_of))).sum() + RIDGE * b @ b, rows.T @ (weights[question] * slope) + 2 * RIDGE * b

    b = minimize(loss, np.zeros(len(fitted)), jac=True, method="L-BFGS-B", options={"maxiter": 300}).x / scale
    return dict(zip(fitted, map(float, b))) | FIXED


def score_features(one, weights):
    sums = one.sums(weights)
    order = np.argsort(-sums, kind="stable")
    first, sums = order[:10], sums[order]
    next_hits = [sums[place + 1:place + 1 + COMPARED_HITS] for place in range(len(first))]
    leads = [np.clip(sums[place] - hits.mean(), 0, MAX_LEAD) if len(hits) else 0 for place, hits in enumerate(next_hits)]
    x = [np.ones(len(first)), one.column("coverage")[first], one.column("best_cosine_nearby")[first], 1 / (1 + np.arange(len(first))), np.log1p(leads)]
    return np.stack(x, 1), one.gold[first]


def fit_scores(asked, elsewhere, names, weights):
    rows, right, share = [], [], []
    for name in names:
        for some, factor in ((asked[name], 1), (elsewhere[name], ELSEWHERE)):
            for one in some:
                x, y = score_features(one, weights)
                rows.append(x), right.append(y), share.append(np.full(len(y), factor * weight_of(name, names) / len(some)))
    x, y, w = np.concatenate(rows), np.concatenate(right).astype(float), np.concatenate(share)
    w, scale = w / w.sum(), np.r_[1, x.std(0)[1:] + 1e-9]

    def loss(b):
        m = x / scale @ b
        ridge = RIDGE * np.r_[0, b[1:]]
        return (w * (np.logaddexp(0, m) - y * m)).sum() + ridge @ b, (x / scale).T @ (w * (1 / (1 + np.exp(-m)) - y)) + 2 * ridge

    return minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x / scale


def figures(some, weights):
    hits = [one.gold[np.argsort(-one.sums(weights), kind="stable")[:10]] for one in some]
    return " ".join(f"{np.mean([hit[:k].any() for hit in hits]):.3f}" for k in (1, 5, 10))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--hob", default="target/dist/hob")
    a.add_argument("--data", help="where the other families lie")
    a = a.parse_args()
    asked, elsewhere = {}, {}
    for name, projects in families.load(a.data).items():
        asked[name], elsewhere[name] = ask(a.hob, projects)
        print(f"{name}: {len(asked[name])} questions", file=sys.stderr, flush=True)
    names = list(asked)
    weights = fit_ranking(asked, names)
    for name, weight in weights.items():
        print(f"{name}: {weight:.2f},")
    for name, weight in zip(SCORE, fit_scores(asked, elsewhere, names, weights)):
        print(f"score {name}: {weight:.2f},")
    print(f"{'family':15} {'fitted on all':>20} {'left out':>20}    (any@1, any@5, any@10)")
    for name in names:
        others = [other for other in names if families.GROUPS[other] != families.GROUPS[name]]
        left_out = figures(asked[name], fit_ranking(asked, others)) if others else ""
        print(f"{name:15} {figures(asked[name], weights):>20} {left_out:>20}")


if __name__ == "__main__":
    sys.exit(main())
