#!/usr/bin/env python3
"""Other systems on the same data and with the same measure as `coding-history/eval.py` and `locomo.py`.

    scripts/setup-e2e peers
    bench/.venv/bin/python bench/peers.py [--coding tune|held-out] [--locomo DIR] [--only fts5,minilm,chromadb,mem0] [--json OUT]

    fts5      SQLite FTS5, porter stems, the question's words but the commonest joined by OR, bm25 as SQLite computes it
    minilm    exact cosine over all-MiniLM-L6-v2
    chromadb  a collection per project with the same MiniLM vectors, cosine space
    mem0      mem0ai on its local Qdrant with the same MiniLM vectors and `infer=False`, since its LLM is not there; its BM25 and
              spaCy extras want downloads and are off

A turn is one document, a project (a conversation in LoCoMo) is one collection, limit 10. None of them is told dates, sessions or
neighbours: that is what they do with plain turns. MiniLM runs in numpy here, so its times are numpy's. A system that does not start is named with the reason and left out.
"""
import argparse, hashlib, json, os, pathlib, re, sqlite3, sys, tempfile, time, uuid

os.environ.update(MEM0_TELEMETRY="False", ANONYMIZED_TELEMETRY="False", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
os.environ.setdefault("OPENAI_API_KEY", "none")
HERE = pathlib.Path(__file__).resolve().parent
# Left out of FTS5's queries, which is worth 5 points on LoCoMo.
COMMON = set("""a about after all an and any are as at be been by can could did do does for from had has have how i if in into is it its
me of on or our out so than that the their them then there they this to up us was we were what when where which while who why will with
would you your""".split())


def coding(half):
    """Projects as (name, {turn id: text}, [(kind, question, evidence ids)])."""
    def load(name):
        return [json.loads(line) for line in (HERE / "coding-history" / name).read_text(encoding="utf-8").splitlines()]

    turns, questions = load("turns.jsonl"), load(f"questions-{half}.jsonl")
    for project in sorted({t["project"] for t in turns}):
        yield (project, {t["id"]: t["text"] for t in turns if t["project"] == project},
               [(q["kind"], q["question"], q["evidence"]) for q in questions if q["project"] == project])


def locomo(folder):
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        conversation, texts, number = json.loads(path.read_text(encoding="utf-8")), {}, 1
        while f"session_{number}_date_time" in conversation or f"session_{number}" in conversation:
            for turn in conversation.get(f"session_{number}") or []:
                caption = turn.get("blip_caption")
                texts[turn["dia_id"]] = f"{turn['speaker']}: {turn['text']}" + (f" [shows {caption}]" if caption else "")
            number += 1
        questions = []
        for q in conversation["qa"]:
            evidence = [e for e in re.findall(r"D\d+:\d+", " ".join(q.get("evidence") or [])) if e in texts]
            if q.get("category") != 5 and evidence:
                questions.append((f"category {q['category']}", q["question"], evidence))
        yield path.stem, texts, questions


class Fts5:
    def __init__(self, _):
        self.db = sqlite3.connect(":memory:")

    def insert(self, texts):
        self.db.execute("DROP TABLE IF EXISTS turns")
        self.db.execute("CREATE VIRTUAL TABLE turns USING fts5(id UNINDEXED, text, tokenize = 'porter unicode61')")
        self.db.executemany("INSERT INTO turns VALUES (?, ?)", texts.items())

    def ask(self, question):
        words = re.findall(r"\w+", question)
        query = " OR ".join(f'"{word}"' for word in [w for w in words if w.lower() not in COMMON] or words)
        return [row[0] for row in self.db.execute("SELECT id FROM turns WHERE turns MATCH ? ORDER BY rank LIMIT 10", (query,))]


class Cosine:
    def __init__(self, model):
        self.model = model()

    def insert(self, texts):
        self.ids, self.rows = list(texts), self.model.encode(texts.values())

    def ask(self, question):
        scores = self.rows @ self.model.encode([question])[0]
        return [self.ids[i] for i in (-scores).argsort(kind="stable")[:10]]


class Chroma:
    def __init__(self, model):
        import chromadb
        self.model, self.client = model(), chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))

    def insert(self, texts):
        # All ephemeral clients of a process share their collections, so the name must be new.
        self.collection = self.client.create_collection(f"turns-{uuid.uuid4()}", metadata={"hnsw:space": "cosine"}, embedding_function=None)
        vectors, ids = self.model.encode(texts.values()), list(texts)
        for start in range(0, len(ids), 1000):
            part = ids[start:start + 1000]
            self.collection.add(ids=part, documents=[texts[i] for i in part], embeddings=vectors[start:start + 1000])

    def ask(self, question):
        return self.collection.query(query_embeddings=self.model.encode([question]), n_results=10)["ids"][0]


class Mem0:
    def __init__(self, model):
        self.folder = tempfile.TemporaryDirectory(prefix="peers-mem0-")
        os.environ["MEM0_DIR"] = self.folder.name
        from mem0 import Memory
        self.memory = Memory.from_config({"history_db_path": f"{self.folder.name}/history.db", "vector_store": {"provider": "qdrant", "config": {
            "path": f"{self.folder.name}/vectors", "embedding_model_dims": 384, "on_disk": False}}})
        model = model()

        class Embedder:
            def embed(self, text, memory_action=None):
                return model.encode([text])[0].tolist()

            def embed_batch(self, texts, memory_action=None):
                return model.encode(texts).tolist()

        self.memory.embedding_model, self.number = Embedder(), 0

    def insert(self, texts):
        self.number += 1
        for turn, text in texts.items():
            self.memory.add([{"role": "user", "content": text}], user_id=str(self.number), infer=False, metadata={"turn": turn})

    def ask(self, question):
        found = self.memory.search(question, filters={"user_id": str(self.number)}, top_k=10, threshold=0.0)["results"]
        return [hit["metadata"]["turn"] for hit in found]


SYSTEMS = {"fts5": Fts5, "minilm": Cosine, "chromadb": Chroma, "mem0": Mem0}


class Remembering:
    """MiniLM that computes every vector once for all systems. `owed` is the time that the remembered ones took the first time."""

    def __init__(self):
        self.model, self.known, self.owed = None, {}, 0.0

    def __call__(self):
        if self.model is None:
            from minilm import MiniLm
            self.model = MiniLm()
        return self

    def encode(self, texts):
        import numpy
        texts = list(texts)
        self.owed += sum(self.known[text][1] for text in texts if text in self.known)
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        if new:
            began = time.perf_counter()
            rows = self.model.encode(new)
            each = (time.perf_counter() - began) / len(new)
            self.known.update({text: (row, each) for text, row in zip(new, rows)})
        return numpy.array([self.known[text][0] for text in texts])


def summary(rows):
    def any_at(k):
        return round(sum(rank is not None and rank < k for _, rank, _ in rows) / len(rows), 4)

    ms = sorted(took for _, _, took in rows)
    return {"questions": len(rows), "any@1": any_at(1), "any@5": any_at(5), "any@10": any_at(10),
            "mrr@10": round(sum(1 / (rank + 1) for _, rank, _ in rows if rank is not None) / len(rows), 4),
            "p50_ms": round(ms[len(ms) // 2], 2), "p95_ms": round(ms[int(len(ms) * .95)], 2)}


def measure(system, projects, model):
    rows, inserted, spent = [], 0, 0.0

    def timed(action, argument):
        began, owed = time.perf_counter(), model.owed
        return action(argument), time.perf_counter() - began + model.owed - owed

    for _, texts, questions in projects:
        spent, inserted = spent + timed(system.insert, texts)[1], inserted + len(texts)
        for kind, question, evidence in questions:
            hits, took = timed(system.ask, question)
            rows.append((kind, next((i for i, hit in enumerate(hits) if hit in evidence), None), took * 1000))
    groups = {"all": [r for r in rows if r[0] != "cross"]}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    return {"groups": {name: summary(part) for name, part in groups.items()}, "turns_per_s": round(inserted / spent, 1)}


def digest(paths):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def show(title, results):
    print(f"\n{title}\n{'system':10}{'group':14}{'n':>6}{'any@1':>8}{'any@5':>8}{'any@10':>8}{'mrr@10':>8}{'p50 ms':>8}{'p95 ms':>8}{'turns/s':>9}")
    for name, result in results.items():
        if "failed" in result:
            print(f"{name:10}did not run: {result['failed']}")
            continue
        for group, f in result["groups"].items():
            rate = f"{result['turns_per_s']:>9}" if group == "all" else ""
            print(f"{name:10}{group:14}{f['questions']:>6}{f['any@1']:>8.3f}{f['any@5']:>8.3f}{f['any@10']:>8.3f}{f['mrr@10']:>8.3f}{f['p50_ms']:>8}{f['p95_ms']:>8}{rate}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--coding", choices=["tune", "held-out"])
    arguments.add_argument("--locomo", help="a folder of LoCoMo conversations")
    arguments.add_argument("--only", default=",".join(SYSTEMS))
    arguments.add_argument("--json")
    arguments = arguments.parse_args()
    data = {}
    if arguments.coding:
        data[f"coding-history, {arguments.coding}"] = (list(coding(arguments.coding)), digest(sorted((HERE / "coding-history").glob("*.jsonl"))))
    if arguments.locomo:
        data["locomo"] = (list(locomo(arguments.locomo)), digest(sorted(pathlib.Path(arguments.locomo).glob("*.json"))))
    if not data:
        sys.exit("say --coding HALF or --locomo DIR, or both")
    model, report = Remembering(), {}
    for title, (projects, hashes) in data.items():
        results = {}
        for name in arguments.only.split(","):
            # A peer may be missing or refuse to start without a network; the others are measured all the same.
            try:
                results[name] = measure(SYSTEMS[name](model), projects, model)
            except Exception as error:
                results[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
        show(title, results)
        report[title] = {"sha256": hashes, "systems": results}
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
