#!/usr/bin/env python3
"""Collects the sentences that the table is fitted to: one a line, each once, in a fixed order.

    collect.py --wordnet DIR --wheels DIR --crates DIR --out sentences.txt

DIR are WordNet's data files (Debian's `wordnet-base`), wheels as `pip download` leaves them, and unpacked
crates as cargo keeps them. See README.md for the lists and their licences.
"""
import argparse
import ast
import hashlib
import pathlib
import re
import warnings
import zipfile

warnings.filterwarnings("ignore")
PER_PACKAGE = 4000
PERMISSIVE = re.compile(r"MIT|Apache|BSD|ISC|Zlib|Unlicense|CC0|0BSD|PSF", re.I)


def sentences(text):
    """Sentences of 4 to 40 words, without markup."""
    text = re.sub(r"```.*?```", " ", text, flags=re.S)
    text = re.sub(r"<[^>]{1,80}>", " ", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r":\w+:`~?([^`]*)`", r"\1", text)
    text = re.sub(r"[`*#|]+", " ", text)
    for paragraph in re.split(r"\n\s*\n", text):
        flat = " ".join(paragraph.split())
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", flat):
            words = sentence.split()
            letters = sum(c.isalpha() for c in sentence)
            if 4 <= len(words) <= 40 and len(sentence) < 300 and letters > 0.6 * len(sentence):
                yield sentence


def wordnet(folder):
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text("latin-1").splitlines():
            if line.startswith("  ") or " | " not in line:
                continue
            head, gloss = line.split(" | ", 1)
            fields = head.split()
            words = [fields[4 + 2 * n].split("(")[0] for n in range(int(fields[3], 16))]
            words = ", ".join(word.replace("_", " ") for word in words[:4])
            yield f"{words}: " + gloss.split('; "')[0].strip()
            for example in re.findall(r'"([^"]{12,})"', gloss):
                yield example


def docs_of_python(source):
    """Docstrings, and the texts of what is raised and logged."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield from sentences(text)
        elif isinstance(node, ast.Call):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield from sentences(argument.value)


def wheel(path):
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".py") and archive.getinfo(name).file_size < 1 << 20:
                yield from docs_of_python(archive.read(name).decode("utf-8", "replace"))
            elif name.endswith("METADATA"):
                yield from sentences(archive.read(name).decode("utf-8", "replace").split("\n\n", 1)[-1])
            elif name.endswith(".yml") and "/data/english/" in name:
                for line in archive.read(name).decode("utf-8", "replace").splitlines():
                    yield line.strip(" -")


def crate(folder):
    manifest = (folder / "Cargo.toml").read_text("utf-8", "replace")
    licence = re.search(r'^license\s*=\s*"([^"]*)"', manifest, re.M)
    if not licence or not PERMISSIVE.search(licence.group(1)):
        return
    for file in sorted(folder.rglob("*.rs")):
        if file.stat().st_size > 1 << 20:
            continue
        block = []
        for line in file.read_text("utf-8", "replace").splitlines():
            comment = re.match(r"\s*//[/!] ?(.*)", line)
            if comment:
                block.append(comment.group(1))
            elif block:
                yield from sentences("\n".join(block))
                block = []
    for file in sorted(folder.glob("*.md")):
        yield from sentences(file.read_text("utf-8", "replace"))


def thinned(found, most):
    """At most so many, chosen by their digests: the same ones every time."""
    found = list(dict.fromkeys(found))
    if len(found) > most:
        found = sorted(found, key=lambda text: hashlib.sha256(text.encode()).digest())[:most]
    return found


def main():
    parser = argparse.ArgumentParser()
    for name in ("wordnet", "wheels", "crates", "out"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    lines = list(wordnet(arguments.wordnet))
    print("wordnet", len(lines))
    before = len(lines)
    for path in sorted(arguments.wheels.glob("*.whl")):
        lines += thinned(wheel(path), PER_PACKAGE)
    print("wheels", len(lines) - before)
    before = len(lines)
    for folder in sorted(arguments.crates.iterdir()):
        if (folder / "Cargo.toml").exists():
            lines += thinned(crate(folder), PER_PACKAGE // 2)
    print("crates", len(lines) - before)
    lines = list(dict.fromkeys(" ".join(line.split()) for line in lines))
    lines = [line for line in lines if line]
    arguments.out.write_text("\n".join(lines) + "\n", "utf-8")
    print("in all", len(lines), hashlib.sha256(arguments.out.read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
