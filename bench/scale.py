#!/usr/bin/env python3
"""How the memory does as it grows, through the public path: `hob import`, `hob serve` and `hob mcp` on a home of its own.

    bench/scale.py --hob target/dist/hob [--sizes 10000,100000] [--json OUT] [--keep FOLDER] [--postgres] [--http] [--again]

All turns are of one project, which is the worst case: nothing is left out of a question for being elsewhere. Words are drawn as often as
they occur in `coding-history/turns.jsonl`; one in eight is a name out of 60,000, since that is what code has. Sessions are of 50 turns, a
turn has 33 words on average. A question is six words that stand in one turn. The same seed makes the same store. With
--postgres the memory is in a PostgreSQL server on a temporary folder, or in the folder that is kept. With --http questions go over one
kept connection: `GET /admin/memory/search` with the admin's token, since what was imported is the owner's and `POST /mcp` speaks for apps; beside
it stands what a `memory_recall` through `POST /mcp` takes in an app's memory of one note. With --again nothing is imported: a store that was kept
is asked.
"""
import argparse, collections, http.client, json, os, pathlib, random, re, shutil, signal, subprocess, sys, tempfile, time, urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from postgres import Postgres

PROJECT = "/bench/project"
SESSION = 50


class Words:
    def __init__(self):
        counts = collections.Counter()
        for line in (HERE / "coding-history" / "turns.jsonl").read_text(encoding="utf-8").splitlines():
            counts.update(re.findall(r"[A-Za-z_][\w./:-]*\w", json.loads(line)["text"]))
        self.words, self.weights = list(counts), []
        total = 0
        for word in self.words:
            total += counts[word]
            self.weights.append(total)
        parts = [word.lower() for word in self.words if word.isalpha() and 3 < len(word) < 12][:400]
        self.names = [f"{parts[n % 400]}_{parts[n * 7 // 400 % 400]}{n % 13 or ''}" for n in range(60_000)]

    def turn(self, chance):
        count = max(4, min(300, int(chance.lognormvariate(3.2, .75))))
        words = chance.choices(self.words, cum_weights=self.weights, k=count)
        for place in range(0, count, 8):
            words[chance.randrange(place, min(place + 8, count))] = self.names[int(60_000 * chance.random() ** 2)]
        return " ".join(words)


def write(folder, words, first, count, of):
    """Transcripts of the turns from `first` on, and a few of their texts: about 400 of so many."""
    os.makedirs(folder)
    some = []
    for start in range(first, first + count, 1000):
        with open(f"{folder}/{start}.jsonl", "w") as file:
            for n in range(start, min(start + 1000, first + count)):
                chance = random.Random(n)
                text, role = words.turn(chance), ("user", "assistant")[n % 2]
                when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_750_000_000 + 45 * n))
                file.write(json.dumps({"type": role, "uuid": f"00000000-0000-4000-8000-{n:012}", "sessionId": f"s{n // SESSION}", "cwd": PROJECT,
                                       "timestamp": when, "message": {"role": role, "content": text}}) + "\n")
                if n % max(1, of // 400) == 0:
                    some.append(text)
    return some


class Hob:
    def __init__(self, program, folder, url=None):
        self.program, self.home, self.url = program, folder + "/hob", url
        keep = ("PATH", "LANG", "TMPDIR")
        self.env = {name: os.environ[name] for name in keep if name in os.environ} | {"HOME": folder, "HOB_HOME": self.home}
        if url:
            self.env["HOB_STORE_URL"] = url

    def run(self, *args):
        done = subprocess.run([self.program, *args], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            sys.exit(f"hob {args[0]} failed: {done.stderr.decode()}")
        return json.loads(done.stdout)

    def imported_in_parts(self, folder, words, size):
        """Turns a second of each part, and a few of the texts."""
        rates, texts, part = [], [], max(5000, size // 20)
        for start in range(0, size, part):
            count = min(part, size - start)
            texts += write(folder, words, start, count, size)
            inserted, rate = self.imported(folder)
            assert inserted == count, inserted
            rates.append((count, rate))
            print(f"  {start + count} turns, {rate:.0f} turns/s", file=sys.stderr, flush=True)
            shutil.rmtree(folder)
        return rates, texts

    def imported(self, folder):
        """Turns a second."""
        began = time.perf_counter()
        answer = self.run("import", "--json", folder)
        return answer["inserted"], answer["inserted"] / (time.perf_counter() - began)

    def serve(self, http=False):
        listen = ["--listen", "127.0.0.1:0"] if http else ["--no-http"]
        self.env["HOB_ADMIN_TOKEN"] = "bench" * 8
        self.server = subprocess.Popen([self.program, "serve", *listen], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        said = self.server.stdout.readline().decode()
        self.web = http and Web(urllib.parse.urlsplit(said.split()[-1]).netloc)
        return self

    def bridge(self):
        self.mcp = subprocess.Popen([self.program, "mcp"], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number = 0
        self.call("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}})

    def call(self, method, params):
        self.number += 1
        self.mcp.stdin.write(json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}).encode() + b"\n")
        self.mcp.stdin.flush()
        answer = json.loads(self.mcp.stdout.readline())
        if "error" in answer or answer["result"].get("isError"):
            sys.exit(f"{method}: {answer}")
        return answer["result"]

    def tool(self, name, **arguments):
        return self.call("tools/call", {"name": name, "arguments": arguments})["structuredContent"]

    def recall(self, cue):
        if self.web:
            return self.web.get("/admin/memory/search", self.env["HOB_ADMIN_TOKEN"], q=cue, project=PROJECT, limit=10)
        return self.tool("memory_recall", cue=cue, project=PROJECT)

    def rss(self):
        with open(f"/proc/{self.server.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024

    def stop(self):
        if getattr(self, "mcp", None):
            self.mcp.stdin.close()
            self.mcp.wait()
        self.server.send_signal(signal.SIGTERM)
        self.server.wait()


class Web:
    """One connection, kept."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address)

    def ask(self, method, path, token, body=None, accept="application/json"):
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": accept}
        self.connection.request(method, path, body and json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if answer.status >= 300:
            sys.exit(f"{method} {path}: {answer.status} {text}")
        return text

    def get(self, path, token, **query):
        return json.loads(self.ask("GET", path + "?" + urllib.parse.urlencode(query), token))

    def tool(self, token, name, **arguments):
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        return self.ask("POST", "/mcp", token, call, "application/json, text/event-stream")


def busy(*pids):
    """Milliseconds of processor that these processes and their children have had."""
    ticks = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = stat.parent.name, stat.read_text().rsplit(") ", 1)[1].split()
        except OSError:
            continue
        if int(pid) in pids or int(rest[1]) in pids:
            ticks += int(rest[11]) + int(rest[12])
    return ticks * 1000 / os.sysconf("SC_CLK_TCK")


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))]


def question(text, chance):
    words = [word for word in text.split() if len(word) > 3] or text.split()
    return " ".join(chance.sample(words, min(6, len(words))))


def measure(program, size, folder, postgres=None, http=False, again=False):
    url = postgres and (postgres.url("bench_1") if again else postgres.database())
    chance, words, hob = random.Random(size), Words(), Hob(program, folder, url)
    figures = {"turns": size}
    # What comes on top of a store of this size: a tenth of it, or 20,000.
    more = min(20_000, max(2_000, size // 10))
    if again:
        texts = [words.turn(random.Random(n)) for n in range(0, size, max(1, size // 400))]
    else:
        rates, texts = hob.imported_in_parts(f"{folder}/part", words, size)
        figures["import turns/s"] = round(size / sum(count / rate for count, rate in rates))
        figures["first part turns/s"], figures["last part turns/s"] = round(rates[0][1]), round(rates[-1][1])
        texts += write(f"{folder}/more", words, size, more, more)
        figures["more turns/s"] = round(hob.imported(f"{folder}/more")[1])
        shutil.rmtree(f"{folder}/more")
    if http:
        token = hob.run("app", "create", f"bench{os.getpid()}", "--json")["token"]
    began = time.perf_counter()
    hob.serve(http).bridge()
    partial = hob.recall(question(texts[0], chance))["partial"]
    figures["start to answer ms"] = round((time.perf_counter() - began) * 1000, 1)
    waited = 0
    while partial:
        time.sleep(.02)
        partial = hob.recall(question(texts[0], chance))["partial"]
        waited = time.perf_counter() - began
    figures["start to whole answer ms"] = round(waited * 1000, 1) or figures["start to answer ms"]
    for _ in range(50):
        hob.recall(question(chance.choice(texts), chance))
    times, found = [], 0
    pids = [hob.server.pid] + ([postgres.server.pid] if postgres else [])
    before = busy(*pids)
    for _ in range(500):
        text = chance.choice(texts)
        cue = question(text, chance)
        began = time.perf_counter()
        hits = hob.recall(cue)["hits"]
        times.append((time.perf_counter() - began) * 1000)
        found += any(hit["text"] == text for hit in hits)
    figures["recall CPU ms"] = round((busy(*pids) - before) / 500, 2)
    for name, part in (("p50", .5), ("p95", .95), ("p99", .99)):
        figures[f"recall {name} ms"] = round(quantile(times, part), 2)
    figures["found"] = found / 500
    figures["RSS MB"] = round(hob.rss())
    if http:
        hob.web.tool(token, "memory_capture", text="the quixotic gadget is green", project=PROJECT)
        times = []
        for _ in range(100):
            began = time.perf_counter()
            answer = hob.web.tool(token, "memory_recall", cue="which colour has the gadget", project=PROJECT)
            times.append((time.perf_counter() - began) * 1000)
            assert "green" in answer, answer
        figures["POST /mcp p50 ms"] = round(quantile(times, .5), 2)
    waits = []
    for n in range(0 if again else 20):
        note = f"the quixotic gadget number {n} of {size} is zyx{n}{size}"
        began = time.perf_counter()
        hob.tool("memory_capture", text=note, project=PROJECT)
        while not any(hit["text"] == note for hit in hob.recall(f"zyx{n}{size}")["hits"]):
            pass
        waits.append((time.perf_counter() - began) * 1000)
    if waits:
        figures["capture to recall ms"] = round(max(waits), 1)
    if postgres:
        figures["disk MB"] = round(int(postgres.sql(url, "SELECT pg_database_size(current_database())")) / 1e6)
        for table in ("turns", "runs", "recent", "vectors", "codes", "standing"):
            figures[f"{table} MB"] = round(int(postgres.sql(url, f"SELECT pg_total_relation_size('hob.memory_{table}')")) / 1e6)
    else:
        figures["disk MB"] = round(sum(file.stat().st_size for file in pathlib.Path(hob.home).glob("memory.db*")) / 1e6)
    hob.stop()
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hob", required=True)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--json")
    parser.add_argument("--keep", help="leave the stores in this folder")
    parser.add_argument("--postgres", action="store_true", help="the memory is in PostgreSQL")
    parser.add_argument("--buffers", default="4GB", help="the server's shared_buffers")
    parser.add_argument("--http", action="store_true", help="questions go over HTTP")
    parser.add_argument("--again", action="store_true", help="ask what was kept, import nothing")
    args = parser.parse_args()
    rows = []
    for size in map(int, args.sizes.split(",")):
        folder = f"{args.keep}/{size}" if args.keep else tempfile.mkdtemp()
        os.makedirs(folder, exist_ok=True)
        try:
            if args.postgres:
                with Postgres(args.buffers, args.keep and f"{folder}/pg") as server:
                    rows.append(measure(os.path.abspath(args.hob), size, folder, server, args.http, args.again))
            else:
                rows.append(measure(os.path.abspath(args.hob), size, folder, None, args.http, args.again))
        finally:
            if not args.keep:
                shutil.rmtree(folder)
        print(json.dumps(rows[-1]), flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
