"""OpenAI's Agents SDK against Hob, over both of OpenAI's APIs, and with the history in a conversation."""

import asyncio

from agents import (
    Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIConversationsSession, OpenAIResponsesModel, Runner,
    function_tool, set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel

from layer_told import CALLS, FORM, TOKEN, URL, main

set_tracing_disabled(True)
CALLED = []


class Sum(BaseModel):
    total: int


@function_tool
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    CALLED.append((a, b))
    return str(a + b)


def each(run, kinds=(OpenAIResponsesModel, OpenAIChatCompletionsModel)):
    """Runs a case with each API, each time with a new client: a client belongs to its event loop."""
    def both():
        for kind in kinds:
            async def with_client():
                async with AsyncOpenAI(base_url=f"{URL}/v1", api_key=TOKEN, max_retries=0) as client:
                    await run(client, kind(model="claude", openai_client=client))
            asyncio.run(with_client())
    return both


def helper(model, **more):
    settings = ModelSettings(temperature=0)
    return Agent(name="Helper", instructions="Be brief.", model=model, model_settings=settings, **more)


async def text(_, model):
    result = await Runner.run(helper(model), "one")
    assert result.final_output == "echo: one", result
    result = await Runner.run(helper(model), [*result.to_input_list(), {"role": "user", "content": "two"}])
    assert result.final_output == "echo: two", result


async def streaming(_, model):
    result = Runner.run_streamed(helper(model), "[[big 2000]]")
    pieces = []
    async for event in result.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            pieces.append(event.data.delta)
    assert len("".join(pieces)) == 2000, len("".join(pieces))


async def tools(_, model):
    CALLED.clear()
    result = await Runner.run(helper(model, tools=[add]), CALLS)
    assert CALLED == [(1, 2), (3, 4)], CALLED
    assert result.final_output.startswith("Sum") and "7" in result.final_output, result


async def structured_output(_, model):
    result = await Runner.run(helper(model, output_type=Sum), FORM)
    assert result.final_output == Sum(total=10), result


async def sessions(client, model):
    session = OpenAIConversationsSession(openai_client=client)
    for prompt in ("one", "two"):
        result = await Runner.run(helper(model), prompt, session=session)
        assert result.final_output == f"echo: {prompt}", result
    result = await Runner.run(helper(model), "[[say Before: {history}]]", session=session)
    assert "echo: one" in result.final_output, result
    items = await session.get_items()
    assert len(items) == 6, items
    await session.pop_item()
    assert len(await session.get_items()) == 5
    await session.clear_session()


main(["openai-agents"], {
    "text": each(text),
    "streaming": each(streaming),
    "tools": each(tools),
    "structured output": each(structured_output),
    # The layer itself cannot convert the items of a conversation for Chat Completions.
    "conversations": each(sessions, [OpenAIResponsesModel]),
})
