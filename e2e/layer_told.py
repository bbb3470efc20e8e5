"""What the layers on top of the SDKs have in common, in Python: see layer_told.mjs."""

import sys
import traceback
from importlib.metadata import version

URL, TOKEN = sys.argv[1:3]

# Prompts for the scripted agent: it calls the client's function twice, and it answers in a form.
CALLS = '[[tool mcp__app__add {"a": 1, "b": 2}]] [[tool mcp__app__add {"a": 3, "b": 4}]] [[say Sum {result}.]]'
FORM = '[[say {"total": 10}]]'


def main(packages, cases):
    """Runs the cases and prints what was run."""
    for name, run in cases.items():
        try:
            run()
        except BaseException:
            print(f"{name}: {traceback.format_exc()}", file=sys.stderr)
            sys.exit(1)
    names = ", ".join(f"`{name}` {version(name)}" for name in packages)
    print(f"| {names} | {', '.join(cases)} |")
