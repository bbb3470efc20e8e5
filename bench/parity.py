#!/usr/bin/env python3
"""Whether the memory in PostgreSQL finds what the memory in the home finds: the same LoCoMo conversations in both, the same questions,
through the public path.

    parity.py --hob target/dist/hob --data DIR [--json OUT]

Said are the share of questions with the same ten hits in the same order, with the same ten hits in any order, and any@5 of both.
"""
import argparse, json, os, pathlib, re, subprocess, sys, tempfile, time, uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "coding-history")]
from eval import Mcp
from locomo import sessions, transcript, words
from postgres import Postgres


class Side:
    """A home with a server on it."""

    def __init__(self, hob, root, name, url=None):
        folder = os.path.join(root, name)
        os.makedirs(folder)
        self.hob = hob
        self.env = {**os.environ, "HOME": folder, "HOB_HOME": os.path.join(folder, "h"), "HOB_SOCKET": os.path.join(folder, "s")}
        if url:
            self.env["HOB_STORE_URL"] = url
        self.server = subprocess.Popen([hob, "serve", "--no-http"], env=self.env, cwd=root, stdout=subprocess.PIPE, text=True)
        if not self.server.stdout.readline():
            raise RuntimeError("hob serve ended before it answered")

    def capture(self, session, cwd, file):
        command = [self.hob, "capture-transcript", "--session-id", session, "--cwd", cwd, file]
        answer = subprocess.run(command, env=self.env, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True)
        assert json.loads(answer.stdout)["status"] == "captured", answer.stdout

    def asked(self, cwd, questions):
        bridge, hits, took = Mcp(self.hob, self.env, cwd), [], []
        for question in questions:
            began = time.perf_counter()
            found = bridge.tool("memory_recall", {"cue": question, "limit": 10, "budget_tokens": 100000, "project": cwd})["hits"]
            took.append((time.perf_counter() - began) * 1000)
            hits.append([hit["text"].strip() for hit in found])
        bridge.process.kill()
        bridge.process.wait()
        return hits, took

    def stop(self):
        self.server.terminate()
        self.server.wait(20)


def compare(hob, path, server):
    conversation, texts = json.loads(path.read_text(encoding="utf-8")), {}
    with tempfile.TemporaryDirectory(prefix="parity-") as root:
        root = os.path.realpath(root)
        cwd = os.path.join(root, "project")
        os.makedirs(cwd)
        sides = [Side(hob, root, "home"), Side(hob, root, "database", server.database())]
        for number, began, turns in sessions(conversation):
            session, file = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{path.name}-{number}")), os.path.join(root, "transcript.jsonl")
            transcript(file, session, cwd, began, turns, conversation["speaker_a"])
            texts.update({turn["dia_id"]: words(turn).strip() for turn in turns})
            for side in sides:
                side.capture(session, cwd, file)
        questions, evidence = [], []
        for asked in conversation["qa"]:
            named = {texts[e] for e in re.findall(r"D\d+:\d+", " ".join(asked.get("evidence") or [])) if e in texts}
            if asked.get("category") != 5 and named:
                questions.append(asked["question"])
                evidence.append(named)
        (home, home_took), (database, database_took) = (side.asked(cwd, questions) for side in sides)
        for side in sides:
            side.stop()
    any5 = lambda hits, named: bool(named & set(hits[:5]))
    return [{"same order": a == b, "same": sorted(a) == sorted(b), "home any@5": any5(a, named), "database any@5": any5(b, named),
             "home ms": one, "database ms": two} for a, b, named, one, two in zip(home, database, evidence, home_took, database_took)]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--hob", required=True)
    arguments.add_argument("--data", required=True)
    arguments.add_argument("--json")
    arguments = arguments.parse_args()
    rows = []
    with Postgres() as server:
        for path in sorted(pathlib.Path(arguments.data).glob("*.json")):
            rows += compare(os.path.abspath(arguments.hob), path, server)
            print(path.name, len(rows), flush=True)
    if not rows:
        sys.exit(f"{arguments.data} has no conversations")
    share = lambda name: round(sum(row[name] for row in rows) / len(rows), 4)
    found = {"questions": len(rows)} | {name: share(name) for name in ("same order", "same", "home any@5", "database any@5")}
    for name in ("home ms", "database ms"):
        times = sorted(row[name] for row in rows)
        found[f"{name} p50"], found[f"{name} p95"] = round(times[len(times) // 2], 2), round(times[int(len(times) * .95)], 2)
    print(json.dumps(found))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")
    if found["same"] < .95 or abs(found["home any@5"] - found["database any@5"]) > .01:
        sys.exit("the two do not find the same")


if __name__ == "__main__":
    main()
