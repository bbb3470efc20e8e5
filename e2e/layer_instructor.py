"""Instructor against Hob, as an OpenAI-compatible model: by a form, by a tool, and as plain JSON."""

import instructor
from openai import OpenAI
from pydantic import BaseModel

from layer_told import FORM, TOKEN, URL, main


class Sum(BaseModel):
    total: int


def ask(mode, prompt):
    client = instructor.from_openai(OpenAI(base_url=f"{URL}/v1", api_key=TOKEN, max_retries=0), mode=mode)
    messages = [{"role": "user", "content": prompt}]
    return client.chat.completions.create(model="claude", messages=messages, response_model=Sum, max_retries=0)


def structured_output():
    for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.JSON):
        assert ask(mode, FORM).total == 10


def tools():
    assert ask(instructor.Mode.TOOLS, '[[tool mcp__app__Sum {"total": 10}]] [[say Done.]]').total == 10


main(["instructor"], {"structured output": structured_output, "tools": tools})
