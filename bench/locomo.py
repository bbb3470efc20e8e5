#!/usr/bin/env python3
"""How well Hob finds the evidence in LoCoMo conversations, through its public path only.

    locomo.py --hob target/dist/hob --data DIR [--json OUT]

DIR holds conversations as LoCoMo has them (CC BY-NC 4.0, so they are not part of this repository). A conversation is a project, each
of its sessions a transcript at its own time. A turn is "Speaker: text", and what a picture shows. Asked are the questions of
categories 1 to 4 that name their evidence: any@k says in how many of them a turn of the evidence is among the first k hits.
"""
import argparse, json, os, pathlib, re, subprocess, sys, tempfile, time, uuid
from datetime import datetime, timedelta, timezone

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "coding-history"))
from eval import Mcp, summary


def sessions(conversation):
    number = 1
    while f"session_{number}_date_time" in conversation or f"session_{number}" in conversation:
        turns = conversation.get(f"session_{number}")
        if isinstance(turns, list) and turns:
            said = conversation.get(f"session_{number}_date_time", "").strip()
            try:
                began = datetime.strptime(said, "%I:%M %p on %d %B, %Y")
            except ValueError:
                began = datetime(2023, 1, 1)
            yield number, began.replace(tzinfo=timezone.utc), turns
        number += 1


def words(turn):
    caption = turn.get("blip_caption")
    return f"{turn['speaker']}: {turn['text']}" + (f" [shows {caption}]" if caption else "")


def transcript(path, session, cwd, began, turns, user):
    parent = None
    with open(path, "w", encoding="utf-8") as file:
        for number, turn in enumerate(turns):
            name, role = str(uuid.uuid4()), "user" if turn["speaker"] == user else "assistant"
            message = {"role": role, "content": words(turn) if role == "user" else [{"type": "text", "text": words(turn)}]}
            if role == "assistant":
                message |= {"model": "m", "id": name, "stop_reason": "end_turn"}
            stamp = (began + timedelta(seconds=20 * number)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
            file.write(json.dumps({"type": role, "uuid": name, "parentUuid": parent, "isSidechain": False, "sessionId": session, "cwd": cwd,
                                   "timestamp": stamp, "message": message}, ensure_ascii=False) + "\n")
            parent = name


def evaluate(hob, path):
    conversation, rows, texts = json.loads(path.read_text(encoding="utf-8")), [], {}
    with tempfile.TemporaryDirectory(prefix="locomo-") as root:
        root = os.path.realpath(root)
        cwd = os.path.join(root, "project")
        os.makedirs(cwd)
        env = {**os.environ, "HOME": root, "HOB_HOME": os.path.join(root, "h"), "HOB_SOCKET": os.path.join(root, "s")}
        server = subprocess.Popen([hob, "serve", "--no-http"], env=env, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            if not server.stdout.readline():
                raise RuntimeError("hob serve ended before it answered")
            for number, began, turns in sessions(conversation):
                session, file = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{path.name}-{number}")), os.path.join(root, "transcript.jsonl")
                transcript(file, session, cwd, began, turns, conversation["speaker_a"])
                texts.update({turn["dia_id"]: words(turn).strip() for turn in turns})
                subprocess.run([hob, "capture-transcript", "--session-id", session, "--cwd", cwd, file], env=env, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
            bridge = Mcp(hob, env, cwd)
            for asked in conversation["qa"]:
                evidence = {texts[e] for e in re.findall(r"D\d+:\d+", " ".join(asked.get("evidence") or [])) if e in texts}
                if asked.get("category") == 5 or not evidence:
                    continue
                began = time.perf_counter()
                hits = bridge.tool("memory_recall", {"cue": asked["question"], "limit": 10, "budget_tokens": 100000, "project": cwd})["hits"]
                took = (time.perf_counter() - began) * 1000
                rank = next((place for place, hit in enumerate(hits) if hit["text"].strip() in evidence), None)
                rows.append({"category": asked["category"], "rank": rank, "ms": took})
            bridge.process.kill()
            bridge.process.wait()
        finally:
            server.terminate()
            server.wait(20)
    return rows


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--hob", required=True)
    arguments.add_argument("--data", required=True)
    arguments.add_argument("--json")
    arguments = arguments.parse_args()
    rows, found = [], {}
    for path in sorted(pathlib.Path(arguments.data).glob("*.json")):
        part = evaluate(os.path.abspath(arguments.hob), path)
        found[path.name] = summary(part)
        rows += part
        print(path.name, json.dumps(found[path.name]), flush=True)
    if not rows:
        sys.exit(f"{arguments.data} has no conversations")
    found["all"] = summary(rows)
    for category in sorted({row["category"] for row in rows}):
        found[f"category {category}"] = summary([row for row in rows if row["category"] == category])
    print("all", json.dumps(found["all"]))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
