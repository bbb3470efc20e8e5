"""LangChain's models against Hob, over both vendors' APIs."""

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from layer_told import CALLS, FORM, TOKEN, URL, main

OPENAI = {"model": "claude", "base_url": f"{URL}/v1", "api_key": TOKEN, "max_retries": 0}
MODELS = [
    ChatOpenAI(**OPENAI),
    ChatOpenAI(**OPENAI, use_responses_api=True),
    ChatAnthropic(model="claude-sonnet-4-5", base_url=URL, api_key=TOKEN, max_retries=0),
]


class Sum(BaseModel):
    total: int


@tool
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


def each(run):
    return lambda: [run(model) for model in MODELS]


def text(model):
    reply = model.invoke([SystemMessage("Be brief."), HumanMessage("one")])
    assert reply.text == "echo: one" and reply.usage_metadata["total_tokens"] > 0, reply
    history = [SystemMessage("Be brief."), HumanMessage("one"), reply, HumanMessage("two")]
    assert model.invoke(history).text == "echo: two"


def streaming(model):
    assert len("".join(piece.text for piece in model.stream("[[big 2000]]"))) == 2000


def tools(model):
    bound, messages, calls = model.bind_tools([add]), [HumanMessage(CALLS)], []
    while (reply := bound.invoke(messages)).tool_calls:
        messages.append(reply)
        for call in reply.tool_calls:
            calls.append(call["args"])
            messages.append(ToolMessage(add.invoke(call["args"]), tool_call_id=call["id"]))
    assert calls == [{"a": 1, "b": 2}, {"a": 3, "b": 4}], calls
    assert reply.text.startswith("Sum") and "7" in reply.text, reply


def structured_output(model):
    assert model.with_structured_output(Sum, method="json_schema").invoke(FORM) == Sum(total=10)


main(["langchain-openai", "langchain-anthropic"], {
    "text": each(text),
    "streaming": each(streaming),
    "tools": each(tools),
    "structured output": each(structured_output),
})
