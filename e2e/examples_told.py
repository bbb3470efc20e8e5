"""What the vendors' own examples need to run against Hob, unchanged: see layer_told.py.

    examples_anthropic.py URL TOKEN FOLDER

The examples come with the SDKs' source packages (`scripts/setup-e2e examples`). A line in FOLDER/script tells the scripted
agent what to answer.
"""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

URL, TOKEN, FOLDER = sys.argv[1:4]

# Answers in the forms that the examples want.
MATHS = '[[say {"steps": [{"explanation": "Subtract 31.", "output": "8x = -29"}], "final_answer": "x = -29/8"}]]'
QUERY = '[[tool mcp__app__Query {"table_name": "orders", "columns": ["id"], "conditions": [], "order_by": "asc"}]]'


def main(package, environment, examples):
    """Runs the examples, each with its line for the agent or None, and prints which ran."""
    folder = Path(__file__).parent / ".examples" / f"{package}-{version(package)}" / "examples"
    script = Path(FOLDER) / "script"
    for name, line in examples.items():
        script.write_text(line or "")
        run = subprocess.run(
            [sys.executable, folder / name], cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120)
        if run.returncode != 0 or not run.stdout.strip():
            sys.exit(f"{name}: {run.stdout[-2000:]}\n{run.stderr[-4000:]}")
    script.unlink()
    print(f"| `{package}` {version(package)}, its own examples | {', '.join(examples)} |")
