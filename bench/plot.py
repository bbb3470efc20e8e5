#!/usr/bin/env python3
"""Draws the documentation's plots as SVG, with nothing but Python.

    plot.py RESULTS.json OUT_FOLDER
    plot.py --collect RESULTS.json [--peers PEERS.json] [--coding EVAL.json] [--locomo LOCOMO.json] [--scale SCALE.json]
            [--postgres SCALE.json] [--cluster CLUSTER.json] [--name hob]

RESULTS.json is a list of plots:

    {"file": "recall-coding.svg", "type": "bars", "title": "…", "note": "…", "top": 1, "groups": ["exact", …], "series": {"hob": [.97, …]}}
    {"file": "latency.svg", "type": "lines", "title": "…", "note": "…", "unit": "ms", "x": [10000, 100000], "x_unit": "turns", "series": {"p95": [4.1, 12]}}

Lines have logarithmic axes. A missing value is null. `--collect` puts the plots into RESULTS.json from what `peers.py`,
`coding-history/eval.py`, `locomo.py`, `scale.py` and `cluster.py` wrote with `--json`, and leaves the other plots in it alone.
"""
import argparse, json, math, pathlib
from xml.sax.saxutils import escape

COLOURS = ["#2f6fde", "#e08a1e", "#3a9d5d", "#b04ac0", "#8a8f98", "#c9463d"]
# Text and lines follow the reader's light or dark page; the fills are readable on both.
STYLE = """<style>text{font:13px system-ui,sans-serif;fill:#333}.title{font-size:16px;font-weight:600}.small{font-size:11px;fill:#777}
.grid{stroke:#8885;stroke-width:1}.line{fill:none;stroke-width:2.5}
@media(prefers-color-scheme:dark){text{fill:#ddd}.small{fill:#999}}</style>"""
WIDTH, LEFT, TOP, BOTTOM = 860, 62, 74, 64


def number(value):
    return f"{value:g}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def text(x, y, content, anchor="start", css=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{f" class={chr(34)}{css}{chr(34)}" if css else ""}>{escape(str(content))}</text>'


def frame(plot, height, body):
    x, legend = LEFT, []
    for i, name in enumerate(plot["series"]):
        legend.append(f'<rect x="{x}" y="40" width="12" height="12" rx="2" fill="{COLOURS[i % len(COLOURS)]}"/>' + text(x + 18, 51, name))
        x += 36 + 8 * len(name)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(plot["title"])}">', STYLE,
             text(LEFT, 24, plot["title"], css="title"), *legend, *body, text(LEFT, height - 10, plot.get("note", ""), css="small"), "</svg>\n"]
    return "\n".join(parts)


def nice(most):
    """The next greater number that five steps lead up to."""
    power = 10 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10, 15) if step * power > most * 1.02)


def bars(plot):
    height, top = 380, plot.get("top") or nice(max(v for row in plot["series"].values() for v in row if v is not None))
    floor, room = height - BOTTOM, height - BOTTOM - TOP
    body = []
    for step in range(6):
        y = floor - room * step / 5
        body += [f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}"/>', text(LEFT - 8, y + 4, number(top * step / 5), "end", "small")]
    each = (WIDTH - 12 - LEFT) / len(plot["groups"])
    wide = min(34, each * .82 / len(plot["series"]))
    for g, group in enumerate(plot["groups"]):
        middle = LEFT + each * (g + .5)
        body.append(text(middle, floor + 20, group, "middle"))
        for s, row in enumerate(plot["series"].values()):
            if row[g] is None:
                continue
            x, tall = middle + wide * (s - len(plot["series"]) / 2), room * min(row[g], top) / top
            body.append(f'<rect x="{x:.1f}" y="{floor - tall:.1f}" width="{wide * .9:.1f}" height="{tall:.1f}" rx="2" fill="{COLOURS[s % len(COLOURS)]}"/>')
            if wide >= 17:
                body.append(text(x + wide * .45, floor - tall - 4, f"{row[g]:.2f}".lstrip("0") if top <= 1 else number(row[g]), "middle", "small"))
    return frame(plot, height, body)


def lines(plot):
    height = 380
    floor, room, across = height - BOTTOM, height - BOTTOM - TOP, WIDTH - 160 - LEFT
    values = [v for row in plot["series"].values() for v in row if v]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    first, last = math.log10(plot["x"][0]), math.log10(plot["x"][-1])

    def place(x, y):
        return LEFT + 60 + across * (math.log10(x) - first) / ((last - first) or 1), floor - room * (math.log10(y) - low) / (high - low)

    body = []
    for power in range(low, high + 1):
        y = place(plot["x"][0], 10 ** power)[1]
        body += [f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}"/>', text(LEFT - 8, y + 4, f"{10 ** power:g}", "end", "small")]
    for x in plot["x"]:
        body.append(text(place(x, 10 ** low)[0], floor + 20, f"{x:,} {plot.get('x_unit', '')}".strip(), "middle"))
    for i, row in enumerate(plot["series"].values()):
        colour, points = COLOURS[i % len(COLOURS)], [(*place(x, y), y) for x, y in zip(plot["x"], row) if y]
        body.append(f'<polyline class="line" stroke="{colour}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)}"/>')
        for x, y, value in points:
            # The highest of a column is labelled above its point and the others below theirs, so that two don't meet.
            rivals = [v for other in plot["series"].values() for at, v in zip(plot["x"], other) if v and place(at, v)[0] == x]
            body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>', text(x, y + (-9 if value == max(rivals) else 20), f"{number(value)} {plot.get('unit', '')}".strip(), "middle", "small")]
    return frame(plot, height, body)


def collect(arguments):
    def read(path):
        return json.loads(pathlib.Path(path).read_text()) if path else {}

    peers, coding, locomo, plots = read(arguments.peers), read(arguments.coding), read(arguments.locomo), []
    for title, found in peers.items():
        systems = {name: result["groups"] for name, result in found["systems"].items() if "groups" in result}
        hashes = "sha256 " + " ".join(f"{name} {digest[:8]}" for name, digest in found["sha256"].items())
        if title == "locomo":
            if locomo:
                systems = {arguments.name: {**locomo, "all": locomo["all"]}, **systems}
            measures = ["any@1", "any@5", "any@10", "mrr@10"]
            plots.append({"file": "recall-locomo.svg", "type": "bars", "top": 1, "title": "LoCoMo: evidence found", "note": hashes, "groups": measures,
                          "series": {name: [groups["all"].get(m) for m in measures] for name, groups in systems.items()}})
        else:
            half = title.split(", ")[1]
            if coding.get("half") == half:
                systems = {arguments.name: {**coding["kinds"], "all": coding["bar"]["all but cross"]}, **systems}
            kinds = ["all", "exact", "paraphrase", "decision", "temporal", "correction", "russian", "chinese", "japanese"]
            for measure, slug in (("any@1", "first"), ("any@5", "five")):
                plots.append({"file": f"recall-coding-{half}-{slug}.svg", "type": "bars", "top": 1, "title": f"Coding histories, {half} half: {measure}", "note": hashes,
                              "groups": kinds, "series": {name: [groups.get(k, {}).get(measure) for k in kinds] for name, groups in systems.items()}})
    scale = read(arguments.scale)
    if scale:
        x, note = [row["turns"] for row in scale], "one project; bench/scale.py"
        for slug, title, unit, names in (("latency", "Recall through a bridge", "ms", ["recall p50 ms", "recall p95 ms", "recall p99 ms"]),
                                         ("size", "Memory and disk", "MB", ["RSS MB", "disk MB"]),
                                         ("ingest", "Turns stored a second", "/s", ["import turns/s", "more turns/s"])):
            plots.append({"file": f"memory-{slug}.svg", "type": "lines", "title": title, "note": note, "unit": unit, "x": x, "x_unit": "turns",
                          "series": {name.removeprefix("recall ").removesuffix(" " + unit).removesuffix(" turns/s"): [row[name] for row in scale] for name in names}})
    scale = read(arguments.postgres)
    if scale:
        x, note = [row["turns"] for row in scale], "PostgreSQL and Hob on two cores, one project; bench/scale.py --postgres --http"
        for slug, title, unit, names in (("latency", "Recall over HTTP, the memory in PostgreSQL", "ms", ["recall p50 ms", "recall p95 ms", "recall p99 ms"]),
                                         ("ingest", "Turns stored a second in PostgreSQL", "/s", ["import turns/s", "more turns/s"])):
            plots.append({"file": f"postgres-{slug}.svg", "type": "lines", "title": title, "note": note, "unit": unit, "x": x, "x_unit": "turns",
                          "series": {name.removeprefix("recall ").removesuffix(" " + unit).removesuffix(" turns/s"): [row[name] for row in scale] for name in names}})
    cluster = read(arguments.cluster)
    if cluster:
        note = "agents, nodes, PostgreSQL and clients on two cores; bench/cluster.py"
        groups = [f"{row['nodes']} {'node' if row['nodes'] == 1 else 'nodes'}, {row['asked']}" for row in cluster["nodes"]]
        for name in ("events/s", "turns/s"):
            plots.append({"file": f"cluster-{name.split('/')[0]}.svg", "type": "bars", "title": f"{name.capitalize()} of several nodes on one PostgreSQL", "note": note,
                          "groups": groups, "series": {name: [round(row[name]) for row in cluster["nodes"]]}})
        # Axes are logarithmic: an empty ledger is drawn as one of a thousand.
        x = [max(row["events"], 1000) for row in cluster["growth"]]
        plots.append({"file": "cluster-growth.svg", "type": "lines", "title": "What an event costs as the ledger grows", "note": note, "unit": "µs", "x": x, "x_unit": "events",
                      "series": {"an event": [row["µs"] for row in cluster["growth"]], "reading 100 of them": [row["read ms"] * 1000 for row in cluster["growth"]]}})
    path = pathlib.Path(arguments.collect)
    kept = [p for p in (json.loads(path.read_text()) if path.exists() else []) if p["file"] not in {n["file"] for n in plots}]
    path.write_text(json.dumps(kept + plots, indent=1) + "\n")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("results", nargs="?")
    arguments.add_argument("out", nargs="?")
    arguments.add_argument("--collect")
    arguments.add_argument("--peers")
    arguments.add_argument("--coding")
    arguments.add_argument("--locomo")
    arguments.add_argument("--scale")
    arguments.add_argument("--postgres")
    arguments.add_argument("--cluster")
    arguments.add_argument("--name", default="hob")
    arguments = arguments.parse_args()
    if arguments.collect:
        return collect(arguments)
    if not arguments.out:
        raise SystemExit("say RESULTS.json and OUT_FOLDER, or --collect")
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    for plot in json.loads(pathlib.Path(arguments.results).read_text()):
        (out / plot["file"]).write_text({"bars": bars, "lines": lines}[plot["type"]](plot), encoding="utf-8")
        print(out / plot["file"])


if __name__ == "__main__":
    main()
