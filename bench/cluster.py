"""Several nodes on one PostgreSQL: events and turns per second, and what an event costs as the ledger grows."""
import json
import os
import subprocess
import time

# A closed session of 20 turns with 50 events each is 1,000 events.
EVENTS_A_SESSION, TURNS_A_SESSION = 1000, 20
MESSAGE = ('{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"103b2787-8c0d-4058-ab2d-ad8c24e4f16c",'
           '"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"1794769919537043 "}}}}')


class Cluster:
    def __init__(self, programs, nodes):
        self.programs = programs
        self.process = subprocess.Popen([os.path.join(programs, "hob-cluster"), str(nodes)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        said = json.loads(self.process.stdout.readline())
        self.addresses, self.token = ",".join(said["addresses"]), said["token"]

    def sql(self, statement):
        self.process.stdin.write(" ".join(statement.split()) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def load(self, place, sessions, turns, events, every, spread=0):
        numbers = [str(n) for n in (sessions, turns, events, every, spread)]
        out = subprocess.run([os.path.join(self.programs, "hob-load"), place, self.addresses, self.token, "scripted", *numbers],
                             stdout=subprocess.PIPE, check=True)
        return json.loads(out.stdout)

    def fill(self, events):
        """Brings the ledger to so many events, as closed sessions of another app have left them."""
        have = int(self.sql("SELECT count(*) FROM hob.sessions WHERE app = 'past'")) * EVENTS_A_SESSION
        while have < events:
            some = min(500, (events - have) // EVENTS_A_SESSION)
            self.sql("DROP TABLE IF EXISTS public.made")
            self.sql(f"CREATE TABLE public.made AS SELECT gen_random_uuid() AS id FROM generate_series(1, {some})")
            self.sql("""INSERT INTO hob.sessions (id, created_at, app, agent, meta, cwd, permissions, mcp_servers)
                SELECT id, 1790000000000000, 'past', 'scripted', '{}', '/nowhere', 'deny', '[]' FROM public.made""")
            self.sql(f"""INSERT INTO hob.heads (session, last_event, turn_count, last_turn_at, closed_at, app, fence)
                SELECT id, {EVENTS_A_SESSION}, {TURNS_A_SESSION}, 1790000000000000, extract(epoch FROM now())::bigint * 1000000, 'past', 1
                FROM public.made""")
            self.sql(f"""INSERT INTO hob.turns (session, number, queued_at, started_at, ended_at, first_event, app, state, prompt, text, stop_reason)
                SELECT id, n, 1790000000000000, 1790000000000000, 1790000000000000, n * 50 - 49, 'past', 'finished',
                '[[stamps 49 20]]', repeat('1794769919537043 ', 49), 'end_turn' FROM public.made, generate_series(1, {TURNS_A_SESSION}) n""")
            self.sql(f"""INSERT INTO hob.events (session, seq, at, turn, app, kind, body, fence)
                SELECT id, n, 1790000000000000 + n, (n + 49) / 50, 'past', 'message', '{MESSAGE}', 1
                FROM public.made, generate_series(1, {EVENTS_A_SESSION}) n""")
            have += some * EVENTS_A_SESSION
        self.sql("VACUUM ANALYZE")
        self.sql("CHECKPOINT")

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def spread_of(seen):
    return f"{seen['p50_ms']:.1f}, {seen['p99_ms']:.1f} ms"


def nodes(programs, sessions):
    """All as fast as they can: agents, nodes, database and clients share this machine."""
    row("nodes", "asked", "events/s", "turns/s (one event each)", f"{sessions} sessions, one event every 100 ms: agent to client, median and 99%", "errors")
    row(*["---"] * 6)
    figures = []
    for count in (1, 2, 3):
        for place in ("turns", "elsewhere") if count > 1 else ("turns",):
            cluster = Cluster(programs, count)
            try:
                fast = cluster.load(place, sessions, 10, 100, 0)
                short = cluster.load(place, sessions, 40, 1, 0)
                paced = cluster.load(place, sessions, 3, 50, 100, 5000)
                errors = fast["errors"] + short["errors"] + paced["errors"]
                first = (fast["first_errors"] + short["first_errors"] + paced["first_errors"])[:1]
                where = "the holder" if place == "turns" else "another node"
                row(count, where, f"{fast['events'] / fast['wall_s']:.0f}", f"{short['turns'] / short['wall_s']:.0f}",
                    spread_of(paced), " ".join([str(errors), *first]))
                figures.append({"nodes": count, "asked": where, "events/s": fast["events"] / fast["wall_s"], "turns/s": short["turns"] / short["wall_s"],
                                "p50 ms": paced["p50_ms"], "p99 ms": paced["p99_ms"]})
            finally:
                cluster.stop()
    return figures


def growth(programs, sizes, sessions):
    row("events in the ledger", "on disk", "filled in", "events/s", "wall time an event", "one event every 100 ms: agent to client, median and 99%", "reading 100 events of a session", "errors")
    row(*["---"] * 8)
    figures = []
    cluster = Cluster(programs, 2)
    try:
        for size in sizes:
            begin = time.monotonic()
            cluster.fill(size)
            filled = time.monotonic() - begin
            fast = cluster.load("turns", sessions, 10, 100, 0)
            paced = cluster.load("turns", sessions, 3, 50, 100, 5000)
            size_on_disk = cluster.sql("SELECT pg_size_pretty(pg_database_size(current_database()))")
            read = []
            for _ in range(20):
                plan = cluster.sql("""EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) SELECT body FROM hob.events
                    WHERE session = (SELECT session FROM hob.heads WHERE app = 'bench' LIMIT 1) AND seq > 0 ORDER BY seq LIMIT 100""")
                read.append(json.loads(plan)[0]["Execution Time"])
            row(f"{size:,}", size_on_disk, f"{filled:.0f} s", f"{fast['events'] / fast['wall_s']:.0f}",
                f"{fast['wall_s'] / fast['events'] * 1e6:.0f} µs", spread_of(paced), f"{sorted(read)[10]:.2f} ms", fast["errors"] + paced["errors"])
            figures.append({"events": size, "µs": fast["wall_s"] / fast["events"] * 1e6, "read ms": sorted(read)[10], "p50 ms": paced["p50_ms"]})
    finally:
        cluster.stop()
    return figures


def main(programs, sizes, sessions):
    print("Everything on this one machine: agents, nodes, database and clients.")
    of_nodes = nodes(programs, sessions)
    print()
    return {"nodes": of_nodes, "growth": growth(programs, sizes, sessions)}
