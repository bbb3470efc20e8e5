"""The families of data that recall is measured on, and what measures them: Hob through its public path, and plain FTS5.

A family is a list of `Project`s, each with its sessions and the questions asked of it. All but `coding-history` are other people's
data and not part of this repository; DATA is a folder that has those of them that should be measured:

    DATA/locomo/*.json              conversations of LoCoMo
    DATA/longmemeval.json[.gz]      LongMemEval-S
    DATA/beam/chats/100K/*          a checkout of BEAM
    DATA/coding/REPOSITORY/         turns.jsonl and queries.jsonl of a repository's agent sessions
"""
import collections, gzip, json, os, pathlib, re, shutil, sqlite3, subprocess, sys, tempfile, time, uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "coding-history"))
from eval import Mcp

EVERYTHING = 10_000_000  # tokens
# What is left out together when a family is left out of the fitting.
GROUPS = {"locomo": "chats", "locomo-plain": "chats", "longmemeval": "assistants", "beam": "long mixed", "coding": "coding", "coding-history": "coding"}


@dataclass
class Turn:
    role: str
    text: str
    ts: datetime
    same: str = ""  # what copies of one turn have in common


@dataclass
class Question:
    text: str
    gold: set        # (session, place of the turn)
    sessions: set
    kind: str = ""


@dataclass
class Project:
    name: str
    sessions: dict = field(default_factory=dict)  # name -> turns
    questions: list = field(default_factory=list)


def read_json(path):
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def locomo(data, plain):
    for path in sorted((data / "locomo").glob("*.json")):
        talk, project, places, number = read_json(path), Project(f"locomo{path.stem}"), {}, 1
        while f"session_{number}_date_time" in talk or f"session_{number}" in talk:
            said = talk.get(f"session_{number}")
            if isinstance(said, list) and said:
                began = datetime.strptime(talk[f"session_{number}_date_time"].strip(), "%I:%M %p on %d %B, %Y").replace(tzinfo=timezone.utc)
                turns = project.sessions[str(number)] = []
                for one in said:
                    shows = f" [shows {one['blip_caption']}]" if one.get("blip_caption") else ""
                    text = (one["text"] if plain else f"{one['speaker']}: {one['text']}") + shows
                    places[one["dia_id"]] = (str(number), len(turns))
                    role = "user" if one["speaker"] == talk["speaker_a"] else "assistant"
                    turns.append(Turn(role, text.strip() or "…", began + timedelta(seconds=20 * len(turns))))
            number += 1
        for asked in talk["qa"]:
            gold = {places[e] for e in re.findall(r"D\d+:\d+", " ".join(asked.get("evidence") or [])) if e in places}
            if asked.get("category") != 5 and gold:
                project.questions.append(Question(asked["question"], gold, {s for s, _ in gold}))
        yield project


RELATIVE = re.compile(r"\b(ago|yesterday|today|recent(ly)?|(last|past|this|previous)( \w+)? (days?|weeks?|weekend|months?|years?|\w+day))\b", re.I)


def longmemeval(data):
    path = next(path for path in (data / "longmemeval.json.gz", data / "longmemeval.json") if path.exists())
    when = lambda text: datetime.strptime(re.sub(r"\s*\(\w+\)", "", text), "%Y/%m/%d %H:%M").replace(tzinfo=timezone.utc)
    for number, item in enumerate(read_json(path)):
        if item["question_id"].endswith("_abs"):
            continue
        # A question that speaks of a time as seen from its own day is asked of a history that is moved to today.
        days = (datetime.now(timezone.utc).date() - when(item["question_date"]).date()).days if RELATIVE.search(item["question"]) else 0
        project, gold, sessions = Project(f"longmemeval{number:03d}"), set(), set()
        for place, (name, date, said) in enumerate(zip(item["haystack_session_ids"], item["haystack_dates"], item["haystack_sessions"])):
            turns = project.sessions[str(place)] = []
            for one in said:
                if one["content"].strip():
                    if one.get("has_answer"):
                        gold.add((str(place), len(turns)))
                    turns.append(Turn(one["role"], one["content"], when(date) + timedelta(days=days, seconds=20 * len(turns))))
            if name in item["answer_session_ids"]:
                sessions.add(str(place))
        project.questions.append(Question(item["question"], gold, sessions, item["question_type"]))
        yield project


def numbers_in(value):
    if isinstance(value, (dict, list)):
        return {n for one in (value.values() if isinstance(value, dict) else value) for n in numbers_in(one)}
    return {int(value)} if isinstance(value, int) and not isinstance(value, bool) or isinstance(value, str) and value.isdigit() else set()


def beam(data):
    for path in sorted((data / "beam" / "chats" / "100K").glob("*/chat.json")):
        folder = path.parent
        chat, asked = read_json(path), read_json(folder / "probing_questions" / "probing_questions.json")
        project, places, day = Project(f"beam{folder.name}"), {}, datetime(2024, 1, 1, 9, tzinfo=timezone.utc)
        for batch in chat:
            said = [one for group in batch["turns"] for one in group]
            anchor = next((one["time_anchor"] for one in said if one.get("time_anchor")), None)
            try:
                day = datetime.strptime(anchor, "%B-%d-%Y").replace(hour=9, tzinfo=timezone.utc)
            except (TypeError, ValueError):
                day += timedelta(days=7)
            name = str(batch["batch_number"])
            turns = project.sessions.setdefault(name, [])
            for one in said:
                text = re.sub(r"\s*->->\s*[\d,N/A]+\s*$", "", one["content"])
                if text.strip():
                    places[one["id"]] = (name, len(turns))
                    turns.append(Turn(one["role"], text, day + timedelta(minutes=len(turns))))
        for kind, some in asked.items():
            # The evidence of summaries and orders of events is half the conversation.
            for one in some if kind not in ("summarization", "event_ordering") else ():
                gold = {places[n] for n in numbers_in(one.get("source_chat_ids")) if n in places}
                if gold:
                    project.questions.append(Question(one["question"], gold, set(), kind))
        yield project


def coding(data):
    for folder in sorted(path for path in (data / "coding").iterdir() if path.is_dir()):
        project, places, copies = Project(folder.name), {}, collections.defaultdict(set)
        for one in lines(folder / "turns.jsonl"):
            turns, ts = project.sessions.setdefault(one["session"], []), one["ts"]
            ts = datetime.fromtimestamp(ts / 1000, timezone.utc) if isinstance(ts, (int, float)) else datetime.fromisoformat(ts)
            if turns and ts <= turns[-1].ts:
                ts = turns[-1].ts + timedelta(milliseconds=1)
            place = places[one["session"], one["line"]] = (one["session"], len(turns))
            copies[one["uuid"] or place].add(place)
            turns.append(Turn(one["role"], one["text"], ts, one["uuid"] or ""))
        group_of = {place: group for group in copies.values() for place in group}
        for one in lines(folder / "queries.jsonl"):
            gold = {c for g in one["gold"] for line in g["lines"] if (g["session"], line) in places for c in group_of[places[g["session"], line]]}
            if gold:
                project.questions.append(Question(one["query"], gold, {g["session"] for g in one["gold"]} | {s for s, _ in gold}))
        yield project


def coding_history(half):
    folder, projects, places = HERE.parent / "coding-history", {}, {}
    for one in lines(folder / "turns.jsonl"):
        project = projects.setdefault(one["project"], Project(one["project"]))
        turns = project.sessions.setdefault(one["session"], [])
        places[one["id"]] = (one["session"], len(turns))
        turns.append(Turn(one["role"], one["text"], datetime.fromisoformat(one["ts"].replace("Z", "+00:00"))))
    for one in lines(folder / f"questions-{half}.jsonl"):
        if one["kind"] != "cross":
            gold = {places[evidence] for evidence in one["evidence"]}
            projects[one["project"]].questions.append(Question(one["question"], gold, {s for s, _ in gold}, one["kind"]))
    yield from projects.values()


def load(data):
    """All families that are there, by name."""
    data = pathlib.Path(data) if data else None
    found = {}
    if data and (data / "locomo").is_dir():
        found["locomo"], found["locomo-plain"] = list(locomo(data, False)), list(locomo(data, True))
    if data and any(data.glob("longmemeval.json*")):
        found["longmemeval"] = list(longmemeval(data))
    if data and (data / "beam").is_dir():
        found["beam"] = list(beam(data))
    if data and (data / "coding").is_dir():
        found["coding"] = list(coding(data))
    found["coding-history"] = list(coding_history("tune"))
    return found


def micros(stamp):
    return round(stamp.timestamp() * 1e6)


class Hob:
    """A private Hob that is fed as users feed it: transcripts, `hob import`, `hob mcp`."""

    def __init__(self, binary, projects):
        self.binary, self.root = str(pathlib.Path(binary).resolve()), pathlib.Path(tempfile.mkdtemp(prefix="recall-"))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("HOB_", "IAI_", "ANTHROPIC_", "CLAUDE", "CODEX"))}
        self.env |= {"HOME": str(self.root), "HOB_HOME": str(self.root / "h"), "HOB_SOCKET": str(self.root / "s")}
        self.places, self.bridge = {}, None
        self.server = subprocess.Popen([self.binary, "serve", "--no-http"], env=self.env, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if not self.server.stdout.readline():
            raise RuntimeError("hob serve ended before it answered")
        for project in projects:
            folder = self.root / "transcripts" / project.name
            folder.mkdir(parents=True)
            for number, (name, turns) in enumerate(project.sessions.items()):
                self.write_transcript(folder / f"{number:04d}.jsonl", project, name, turns)
        subprocess.run([self.binary, "import", "--json", str(self.root / "transcripts")], env=self.env, cwd=self.root, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(self.root / "transcripts")
        self.bridge = Mcp(self.binary, self.env, self.root)

    def folder(self, project):
        return str(self.root / "code" / project.name)

    def write_transcript(self, path, project, name, turns):
        session, parent = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{project.name}/{name}")), None
        with open(path, "w", encoding="utf-8") as file:
            for number, turn in enumerate(turns):
                uid = turn.same or str(uuid.uuid5(uuid.NAMESPACE_URL, f"{project.name}/{name}/{number}"))
                message = {"role": turn.role, "content": turn.text if turn.role == "user" else [{"type": "text", "text": turn.text}]}
                if turn.role == "assistant":
                    message |= {"model": "m", "id": f"msg_{uid}", "stop_reason": "end_turn"}
                stamp = turn.ts.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
                file.write(json.dumps({"type": turn.role, "uuid": uid, "parentUuid": parent, "isSidechain": False, "sessionId": session,
                                       "cwd": self.folder(project), "timestamp": stamp, "message": message}, ensure_ascii=False) + "\n")
                parent = uid
                self.places[session, micros(turn.ts) // 1000] = (name, number)

    def ask(self, project, text, **more):
        answer = self.bridge.tool("memory_recall", {"cue": text, "project": self.folder(project), **more})
        for hit in answer["hits"]:
            hit["place"] = self.places.get((hit["session_id"], micros(datetime.fromisoformat(hit["ts"])) // 1000))
        return answer["hits"]

    def close(self):
        if self.bridge:
            self.bridge.process.kill()
            self.bridge.process.wait()
        self.server.terminate()
        self.server.wait()
        shutil.rmtree(self.root, ignore_errors=True)


STOP = set("a an the of to in on at for and or is are was were be been do did does i me my mine you your it its this that these those what which who whom when where "
           "why how many much have has had with from by as about into than then there here can could would should will just any all some not no".split())


class Fts5:
    """SQLite's FTS5: Porter stems, any of the words, BM25; a document is a turn."""

    def __init__(self, project):
        self.db, self.places, self.texts, seen = sqlite3.connect(":memory:"), [], {}, set()
        self.db.execute("create virtual table d using fts5(t, tokenize='porter unicode61')")
        for name, turns in project.sessions.items():
            for number, turn in enumerate(turns):
                if not (turn.same and turn.same in seen):
                    seen.add(turn.same)
                    self.places.append((name, number))
                    self.texts[name, number] = turn.text
        self.db.executemany("insert into d(rowid, t) values(?, ?)", [(n, self.texts[place]) for n, place in enumerate(self.places)])

    def ask(self, text, limit):
        words = [word for word in dict.fromkeys(re.findall(r"\w+", text.lower())) if word not in STOP]
        if not words:
            return []
        match = " OR ".join(f'"{word}"' for word in words)
        return [self.places[row[0]] for row in self.db.execute("select rowid from d where d match ? order by bm25(d) limit ?", (match, limit))]

    def within_budget(self, places, budget=1500, limit=20):
        taken, used = [], 0
        for place in places:
            cost = -(-len(self.texts[place].encode()) // 4)
            if len(taken) < limit and (not taken or used + cost <= budget):
                taken.append(place)
                used += cost
        return taken


def in_batches(projects, most=20_000):
    batch, size = [], 0
    for project in projects:
        turns = sum(map(len, project.sessions.values()))
        if batch and size + turns > most:
            yield batch
            batch, size = [], 0
        batch.append(project)
        size += turns
    if batch:
        yield batch
