#!/usr/bin/env python3
"""Makes turns.jsonl, questions-tune.jsonl, questions-held-out.jsonl and manifest.json from source/*.txt.

    build.py            write the files
    build.py --check    fail if what is committed is not what the sources give

A source file is one project: `name: value` lines, then sessions. `== DATE TIME` begins one. `U:` and `A:` are turns of the
user and the agent, `U#key:` and `A#key:` are turns that a question may name; lines that begin with two blanks go on with the
turn. `? KIND keys: QUESTION` is a question whose evidence is any of the named turns.

Between the hand-written exchanges `filler.py` puts everyday ones, from a fixed seed. The halves: within each kind (and form)
the questions are ordered by the SHA-256 of their id; the even places are `tune`, the odd ones `held-out`.
"""
import hashlib, json, pathlib, random, re, sys
from datetime import datetime, timedelta, timezone

import filler

HERE = pathlib.Path(__file__).parent
SEED = 20261115
NOW = "2026-11-15T12:00:00Z"
# Questions whose date words count from the day on which they are asked; `eval.py` moves the turns so that this day is today.
RELATIVE = re.compile(r"\b(yesterday|last week|a week ago|two weeks ago|last month)", re.I)


def read(path):
    project, sessions, questions, turn = {"slots": {}}, [], [], None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{path.name}:{number}"
        if line.startswith("  ") and turn:
            turn["text"] += "\n" + line[2:]
        elif match := re.match(r"== (\d{4}-\d\d-\d\d \d\d:\d\d)$", line):
            sessions.append({"start": datetime.strptime(match[1], "%Y-%m-%d %H:%M").replace(tzinfo=timezone.utc), "turns": []})
            turn = None
        elif match := re.match(r"([UA])(?:#([\w-]+))?: (.*)$", line):
            turn = {"role": {"U": "user", "A": "assistant"}[match[1]], "key": match[2], "text": match[3]}
            sessions[-1]["turns"].append(turn)
        elif match := re.match(r"\? (\w+)(?:/(\w+))? ([\w,-]+): (.*)$", line):
            questions.append({"kind": match[1], "form": match[2], "keys": match[3].split(","), "question": match[4]})
            turn = None
        elif match := re.match(r"(project|lang): (.*)$", line):
            project[match[1]] = match[2]
        elif match := re.match(r"(path|ident|cmd|topic): (.*)$", line):
            project["slots"][match[1]] = [v.strip() for v in match[2].split(" | ")]
        elif line and not line.startswith("#"):
            raise SystemExit(f"{where}: cannot read: {line}")
    sessions.sort(key=lambda s: s["start"])
    return project, sessions, questions


def blocks(turns):
    """A user's turn and the answers to it stay together."""
    out = []
    for turn in turns:
        if turn["role"] == "user" or not out:
            out.append([])
        out[-1].append(turn)
    return out


def with_filler(chance, project, turns):
    length = chance.randint(10, 18)
    pieces = blocks(turns)
    while sum(len(p) for p in pieces) < length:
        user, assistant = filler.exchange(chance, project["lang"], project["slots"])
        pair = [{"role": "user", "key": None, "text": user}, {"role": "assistant", "key": None, "text": assistant}]
        pieces.insert(chance.randint(0, len(pieces)), pair)
    return [turn for piece in pieces for turn in piece]


def build():
    all_turns, all_questions = [], []
    for path in sorted((HERE / "source").glob("*.txt")):
        project, sessions, questions = read(path)
        name, ids = project["project"], {}
        chance = random.Random(f"{SEED} {name}")
        for number, session in enumerate(sessions, 1):
            session_id, stamp = f"{name}/{number:02}", session["start"]
            for place, turn in enumerate(with_filler(chance, project, session["turns"]), 1):
                turn_id = f"{session_id}/{place:02}"
                if turn["key"]:
                    if turn["key"] in ids:
                        raise SystemExit(f"{path.name}: two turns called {turn['key']}")
                    ids[turn["key"]] = turn_id
                all_turns.append({"id": turn_id, "project": name, "session": session_id, "role": turn["role"],
                                  "ts": stamp.strftime("%Y-%m-%dT%H:%M:%S.000Z"), "text": turn["text"]})
                stamp += timedelta(seconds=chance.randint(15, 240))
        counts = {}
        for question in questions:
            kind = question["kind"]
            counts[kind] = counts.get(kind, 0) + 1
            row = {"id": f"{name}-{kind}-{counts[kind]:02}", "project": name, "kind": kind}
            if question["form"]:
                row["form"] = question["form"]
            if kind == "temporal":
                row |= {"now": NOW, "relative": bool(RELATIVE.search(question["question"]))}
            all_questions.append(row | {"question": question["question"], "evidence": [ids[key] for key in question["keys"]]})
    return all_turns, all_questions


def halves(questions):
    groups = {}
    for question in questions:
        groups.setdefault((question["kind"], question.get("form", "")), []).append(question)
    tune, held_out = [], []
    for _, group in sorted(groups.items()):
        group.sort(key=lambda q: hashlib.sha256(q["id"].encode()).hexdigest())
        tune += group[0::2]
        held_out += group[1::2]
    return tune, held_out


def lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main():
    turns, questions = build()
    tune, held_out = halves(questions)
    files = {"turns.jsonl": lines(turns), "questions-tune.jsonl": lines(tune), "questions-held-out.jsonl": lines(held_out)}
    kinds = {}
    for half, rows in (("tune", tune), ("held-out", held_out)):
        for row in rows:
            kinds.setdefault(row["kind"], {"tune": 0, "held-out": 0})[half] += 1
    manifest = {"now": NOW, "seed": SEED, "turns": len(turns), "sessions": len({t["session"] for t in turns}),
                "projects": len({t["project"] for t in turns}), "questions": len(questions), "kinds": dict(sorted(kinds.items())),
                "sha256": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}}
    files["manifest.json"] = json.dumps(manifest, indent=1) + "\n"
    if "--check" in sys.argv:
        stale = [name for name, text in files.items() if (HERE / name).read_text(encoding="utf-8") != text]
        if stale:
            raise SystemExit(f"not what the sources give: {', '.join(stale)}")
    else:
        for name, text in files.items():
            (HERE / name).write_text(text, encoding="utf-8")
    print(json.dumps({k: v for k, v in manifest.items() if k != "sha256"}))


if __name__ == "__main__":
    main()
