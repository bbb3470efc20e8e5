"""Simon Willison's `llm` against Hob, as an OpenAI-compatible model."""

import json
import os
import tempfile

os.environ["LLM_USER_PATH"] = tempfile.mkdtemp(dir=os.environ["HOME"])

from llm.default_plugins.openai_models import Chat
from pydantic import BaseModel

from layer_told import CALLS, FORM, TOKEN, URL, main

MODEL = Chat("hob", model_name="claude", api_base=f"{URL}/v1", key=TOKEN, supports_tools=True, supports_schema=True)


class Sum(BaseModel):
    total: int


def text():
    talk = MODEL.conversation()
    for prompt in ("one", "two"):
        assert talk.prompt(prompt, system="Be brief.", stream=False, key=TOKEN).text() == f"echo: {prompt}"


def streaming():
    assert len("".join(MODEL.prompt("[[big 2000]]", key=TOKEN))) == 2000


def tools():
    calls = []

    def add(a: int, b: int) -> str:
        """Adds two numbers."""
        calls.append((a, b))
        return str(a + b)

    reply = MODEL.chain(CALLS, tools=[add], key=TOKEN).text()
    assert calls == [(1, 2), (3, 4)], calls
    assert "Sum" in reply and "7" in reply, reply


def structured_output():
    reply = MODEL.prompt(FORM, schema=Sum, stream=False, key=TOKEN)
    assert json.loads(reply.text()) == {"total": 10}, reply


main(["llm"], {"text": text, "streaming": streaming, "tools": tools, "structured output": structured_output})
