#!/usr/bin/env python3
"""How well Hob finds what was said in coding histories, through its public path only.

    eval.py --hob target/dist/hob [--half tune|held-out] [--json OUT] [--misses]

Every session of turns.jsonl becomes a Claude Code transcript with its own times, captured with `hob capture-transcript` into a
`hob serve --no-http` on a temporary home; every project has a folder of its own. `hob export` then tells whether text, time,
session and project of every turn came through. Each question is one `memory_recall` through `hob mcp` with its project,
limit 10 and a large budget. A hit counts when it is an evidence turn: the same session and the same text.

Date words are asked of the clock Hob has. A question such as "what did we fix last week" is therefore asked of a second
home whose turns are moved by whole days, so that the set's `now` is today; all others are asked of the turns as they are.
`held-out` is for final figures only.
"""
import argparse, hashlib, json, os, pathlib, subprocess, sys, tempfile, time, uuid
from datetime import datetime, timedelta, timezone

HERE = pathlib.Path(__file__).resolve().parent
# The groups that the project's promises are about: kinds, and what must hold.
BAR = {"all but cross": ({"any@5": .90}, lambda q: q["kind"] != "cross"),
       "exact": ({"any@1": .95}, lambda q: q["kind"] == "exact"),
       "russian": ({"any@5": .85}, lambda q: q["kind"] == "russian"),
       "chinese": ({"any@5": .85}, lambda q: q["kind"] == "chinese"),
       "japanese": ({"any@5": .85}, lambda q: q["kind"] == "japanese")}


def load(name):
    data = (HERE / name).read_bytes()
    expected = json.loads((HERE / "manifest.json").read_text())["sha256"][name]
    if hashlib.sha256(data).hexdigest() != expected:
        raise SystemExit(f"{name} is not the file of the manifest")
    return [json.loads(line) for line in data.decode().splitlines()]


def moved(stamp, days):
    moment = datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.000Z") + timedelta(days=days)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def session_name(session):
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"coding-history/{session}"))


def transcript(path, cwd, turns, days):
    parent = None
    with open(path, "w", encoding="utf-8") as file:
        for turn in turns:
            name, role = str(uuid.uuid5(uuid.NAMESPACE_URL, f"coding-history/{turn['id']}")), turn["role"]
            message = {"role": role, "content": turn["text"] if role == "user" else [{"type": "text", "text": turn["text"]}]}
            if role == "assistant":
                message |= {"model": "m", "id": name, "stop_reason": "end_turn"}
            file.write(json.dumps({"type": role, "uuid": name, "parentUuid": parent, "isSidechain": False, "cwd": cwd,
                                   "sessionId": session_name(turn["session"]), "timestamp": moved(turn["ts"], days),
                                   "message": message}, ensure_ascii=False) + "\n")
            parent = name


class Mcp:
    """A bridge, spoken to over its standard input and output."""

    def __init__(self, hob, env, cwd):
        self.process = subprocess.Popen([hob, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=cwd, text=True, bufsize=1)
        self.number = 0
        self.call("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "coding-history", "version": "1"}})
        self.process.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def call(self, method, params):
        self.number += 1
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}) + "\n")
        self.process.stdin.flush()
        while line := self.process.stdout.readline():
            answer = json.loads(line)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer["result"]
        raise RuntimeError("the bridge closed")

    def tool(self, name, arguments):
        result = self.call("tools/call", {"name": name, "arguments": arguments})
        if result.get("isError"):
            raise RuntimeError(result)
        return result["structuredContent"]


class Home:
    """A server on a temporary home that holds all turns, moved by `days`."""

    def __init__(self, hob, turns, days):
        self.hob, self.turns, self.days = hob, turns, days

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="coding-history-")
        root = os.path.realpath(self.folder.name)
        self.projects = {name: os.path.join(root, "projects", name) for name in {t["project"] for t in self.turns}}
        for path in self.projects.values():
            os.makedirs(path)
        self.env = {**os.environ, "HOME": root, "HOB_HOME": os.path.join(root, "h"), "HOB_SOCKET": os.path.join(root, "s")}
        for name in ("IAI_MCP_STORE", "IAI_DAEMON_SOCKET_PATH", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
            self.env.pop(name, None)
        self.server = subprocess.Popen([self.hob, "serve", "--no-http"], env=self.env, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            if not self.server.stdout.readline():
                raise RuntimeError("hob serve ended before it answered")
            self.capture(root)
            self.check()
            self.bridge = Mcp(self.hob, self.env, root)
        except BaseException:
            self.__exit__()
            raise
        return self

    def capture(self, root):
        sessions = {}
        for turn in self.turns:
            sessions.setdefault(turn["session"], []).append(turn)
        for session, turns in sessions.items():
            cwd, path = self.projects[turns[0]["project"]], os.path.join(root, "transcript.jsonl")
            transcript(path, cwd, turns, self.days)
            answer = subprocess.run([self.hob, "capture-transcript", "--session-id", session_name(session), "--cwd", cwd, path],
                                    env=self.env, cwd=cwd, check=True, capture_output=True, text=True).stdout
            if json.loads(answer).get("inserted") != len(turns):
                raise RuntimeError(f"{session}: {len(turns)} turns, and hob says {answer}")

    def check(self):
        """Every turn must be there as it was said: where, when, by whom and in which session."""
        out = subprocess.run([self.hob, "export"], env=self.env, check=True, capture_output=True, text=True).stdout
        stored = {(r["session_id"], r["role"], r["text"].strip(), r["ts"][:19], r["project"]) for r in map(json.loads, out.splitlines())}
        for turn in self.turns:
            key = (session_name(turn["session"]), turn["role"], turn["text"].strip(), moved(turn["ts"], self.days)[:19], self.projects[turn["project"]])
            if key not in stored:
                raise RuntimeError(f"{turn['id']} did not come through: {key}")

    def ask(self, question):
        began = time.perf_counter()
        hits = self.bridge.tool("memory_recall", {"cue": question["question"], "limit": 10, "budget_tokens": 100000,
                                                  "project": self.projects[question["project"]]})["hits"]
        return hits, (time.perf_counter() - began) * 1000

    def __exit__(self, *_):
        if hasattr(self, "bridge"):
            self.bridge.process.kill()
            self.bridge.process.wait()
        self.server.terminate()
        self.server.wait(20)
        self.folder.cleanup()


def summary(rows):
    def any_at(k):
        return round(sum(row["rank"] is not None and row["rank"] < k for row in rows) / len(rows), 4)

    ms = sorted(row["ms"] for row in rows)
    return {"questions": len(rows), "any@1": any_at(1), "any@5": any_at(5), "any@10": any_at(10),
            "mrr@10": round(sum(1 / (row["rank"] + 1) for row in rows if row["rank"] is not None) / len(rows), 4),
            "p50_ms": round(ms[len(ms) // 2], 2), "p95_ms": round(ms[int(len(ms) * .95)], 2)}


def evaluate(hob, half):
    turns, questions = load("turns.jsonl"), load(f"questions-{half}.jsonl")
    by_id = {turn["id"]: turn for turn in turns}
    now = json.loads((HERE / "manifest.json").read_text())["now"]
    days = (datetime.now(timezone.utc).date() - datetime.strptime(now, "%Y-%m-%dT%H:%M:%SZ").date()).days
    rows = []
    for shift, asked in ((0, [q for q in questions if not q.get("relative")]), (days, [q for q in questions if q.get("relative")])):
        with Home(hob, turns, shift) as home:
            for question in asked:
                wanted = {(session_name(by_id[e]["session"]), by_id[e]["text"].strip()) for e in question["evidence"]}
                hits, took = home.ask(question)
                rank = next((i for i, hit in enumerate(hits) if (hit["session_id"], hit["text"].strip()) in wanted), None)
                rows.append({**question, "rank": rank, "ms": took, "first": hits[0]["text"] if hits else None})
    return rows


def report(rows):
    kinds = {kind: summary([r for r in rows if r["kind"] == kind]) for kind in sorted({r["kind"] for r in rows})}
    bar = {}
    for name, (promises, belongs) in BAR.items():
        figures = summary([r for r in rows if belongs(r)])
        bar[name] = figures | {"promised": promises, "holds": all(figures[k] >= v for k, v in promises.items())}
    return {"kinds": kinds, "bar": bar}


def show(found):
    print(f"{'':16}{'n':>5}{'any@1':>8}{'any@5':>8}{'any@10':>8}{'mrr@10':>8}{'p50 ms':>8}{'p95 ms':>8}")
    for title, part in (("by kind", found["kinds"]), ("promises", found["bar"])):
        print(title)
        for name, f in part.items():
            promise = "".join(f"   {k} ≥ {v}: {'holds' if f['holds'] else 'MISSED'}" for k, v in f.get("promised", {}).items())
            print(f"  {name:14}{f['questions']:>5}{f['any@1']:>8.3f}{f['any@5']:>8.3f}{f['any@10']:>8.3f}{f['mrr@10']:>8.3f}{f['p50_ms']:>8}{f['p95_ms']:>8}{promise}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--hob", required=True)
    arguments.add_argument("--half", choices=["tune", "held-out"], default="tune")
    arguments.add_argument("--json")
    arguments.add_argument("--misses", action="store_true", help="print questions of the tune half that are not answered in the first five")
    arguments = arguments.parse_args()
    rows = evaluate(os.path.abspath(arguments.hob), arguments.half)
    if arguments.misses and arguments.half == "tune":
        for row in rows:
            if row["rank"] is None or row["rank"] >= 5:
                print(f"{row['id']} rank {row['rank']}: {row['question']}\n    first: {row['first'][:120] if row['first'] else None!r}")
    found = {"half": arguments.half, "sha256": json.loads((HERE / "manifest.json").read_text())["sha256"]} | report(rows)
    show(found)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
