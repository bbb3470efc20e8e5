"""What the Python scripts `sdk_*` share: what they are told, what they ask the test for, and waiting.

    sdk_anthropic.py '{"url": "...", "apps": {...}, "case": "all", "real": false}'

A script prints one JSON object per line: questions, each answered with one line, and last `{"ok": true}`.
Anything else is an exception and exit 1. crates/hob/tests/e2e_v1.rs answers.
"""

import base64
import json
import os
import re
import struct
import sys
import time
import zlib
from pathlib import Path

TOLD = json.loads(sys.argv[1])
REAL = TOLD["real"]
HEADER = "x-hob-session"
DRIVERS = ["terminal", "stream"]
SYSTEM = "You are Beaver, the harbour's clerk."
# A tool of Claude Code's own in the middle of a turn: it writes a file.
WORK = '[[say Looking.]] [[tool Bash {"command":"echo done > %s"}]] [[say Found it.]]'
# Calls of the client's own tool, in one message.
CALLS = ('[[say Adding.]] [[tool mcp__app__add {"a":1,"b":2}]] [[also mcp__app__add {"a":3,"b":4}]] '
         '[[say Done.]]')
PAIR = '[[tool Bash {"command":"echo a"}]] [[also Bash {"command":"echo b"}]] [[say Both.]]'


def system_prompt(command):
    """The file that a command line names. The prompt itself is never on it."""
    (path,) = re.findall(r"--append-system-prompt-file=(\S+)", command)
    return Path(path).read_text(encoding="utf-8")


def ask(question, **more):
    print(json.dumps({"ask": question, **more}), flush=True)
    return json.loads(sys.stdin.readline())


def app(kind):
    return TOLD["apps"][kind]


def agents(kind):
    return ask("agents", app=app(kind)["name"])


def only_agent(kind):
    found = agents(kind)
    assert len(found) == 1, found
    return found[0]


def nothing_left(kind):
    ask("nothing left", app=app(kind)["name"])


def said(holding):
    """Returns the messages, with roles, of the last request to the model that contains these words."""
    return [tuple(pair) for pair in ask("request", holding=holding)["said"]]


def raises(kind, call, *words):
    """The exception of exactly this class, with these words in it."""
    try:
        result = call()
    except Exception as error:
        assert type(error) is kind, f"{type(error)} is not {kind}: {error}"
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return error
    raise AssertionError(f"{kind} was not raised: {result}")


def wait_for(path):
    path = Path(path)
    end = time.monotonic() + 60
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < end, f"there is no {path}"
        time.sleep(0.01)
    return path.read_text().strip()


def long_work(kind):
    """A prompt whose tool runs forever, and the file with the tool's pid once it runs. Hob begins a stream with its first
    word."""
    pid = Path(app(kind)["cwd"]) / f"tool-{os.urandom(4).hex()}"
    return '[[say Begun.]] [[tool Bash {"command":"echo $$ > %s; exec sleep 1000"}]]' % pid.name, pid


def png():
    """A picture of one pixel that no other run has, and its base64."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\0" + os.urandom(3))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    return data, base64.b64encode(data).decode()


def path_in(text):
    """Returns the file that the prompt named to the agent."""
    paths = [line[2:] for line in text.splitlines() if line.startswith("- /")]
    assert len(paths) == 1, text
    return paths[0]


def timed(case):
    """Says how long a case took."""
    def run(*arguments):
        start = time.monotonic()
        result = case(*arguments)
        print(f"{case.__name__} {arguments[:1]}: {time.monotonic() - start:.1f} s", flush=True)
        return result

    return run


def restart(**more):
    TOLD["url"] = ask("restart", **more)


def done():
    print(json.dumps({"ok": True}), flush=True)
