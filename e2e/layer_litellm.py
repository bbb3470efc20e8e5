"""LiteLLM against Hob, over both vendors' APIs."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"

import litellm

from layer_told import CALLS, FORM, TOKEN, URL, main

MODELS = [
    {"model": "openai/claude", "api_base": f"{URL}/v1", "api_key": TOKEN, "num_retries": 0},
    {"model": "anthropic/claude-sonnet-4-5", "api_base": URL, "api_key": TOKEN, "num_retries": 0},
]
ADD = {"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}
SUM = {"type": "json_schema", "json_schema": {"name": "sum", "schema": {
    "type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"], "additionalProperties": False}}}


def each(run):
    return lambda: [run(model) for model in MODELS]


def user(text):
    return {"role": "user", "content": text}


def text(model):
    first = litellm.completion(messages=[{"role": "system", "content": "Be brief."}, user("one")], **model)
    assert first.choices[0].message.content == "echo: one" and first.usage.total_tokens > 0, first
    history = [{"role": "system", "content": "Be brief."}, user("one"), first.choices[0].message.model_dump(), user("two")]
    assert litellm.completion(messages=history, **model).choices[0].message.content == "echo: two"


def streaming(model):
    chunks = litellm.completion(messages=[user("[[big 2000]]")], stream=True, **model)
    assert len("".join(chunk.choices[0].delta.content or "" for chunk in chunks)) == 2000


def tools(model):
    messages, calls = [user(CALLS)], []
    while (reply := litellm.completion(messages=messages, tools=[ADD], **model).choices[0].message).tool_calls:
        messages.append(reply.model_dump())
        for call in reply.tool_calls:
            numbers = json.loads(call.function.arguments)
            calls.append(numbers)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(numbers["a"] + numbers["b"])})
    assert calls == [{"a": 1, "b": 2}, {"a": 3, "b": 4}], calls
    assert reply.content.startswith("Sum") and "7" in reply.content, reply


def structured_output(model):
    reply = litellm.completion(messages=[user(FORM)], response_format=SUM, **model)
    assert json.loads(reply.choices[0].message.content) == {"total": 10}, reply


main(["litellm"], {
    "text": each(text),
    "streaming": each(streaming),
    "tools": each(tools),
    "structured output": each(structured_output),
})
