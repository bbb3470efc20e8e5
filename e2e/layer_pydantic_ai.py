"""pydantic-ai against Hob, over both vendors' APIs."""

import asyncio

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from layer_told import CALLS, FORM, TOKEN, URL, main


class Sum(BaseModel):
    total: int


def each(run):
    """Runs a case with each API in one event loop: a provider's client belongs to it."""
    async def all_models():
        openai = OpenAIProvider(base_url=f"{URL}/v1", api_key=TOKEN)
        anthropic = AnthropicProvider(base_url=URL, api_key=TOKEN)
        for model in (OpenAIChatModel("claude", provider=openai), OpenAIResponsesModel("claude", provider=openai),
                      AnthropicModel("claude-sonnet-4-5", provider=anthropic)):
            await run(model)
    return lambda: asyncio.run(all_models())


async def text(model):
    agent = Agent(model, instructions="Be brief.")
    first = await agent.run("one")
    assert first.output == "echo: one", first
    second = await agent.run("two", message_history=first.all_messages())
    assert second.output == "echo: two", second


async def streaming(model):
    async with Agent(model).run_stream("[[big 2000]]") as reply:
        pieces = [piece async for piece in reply.stream_text(delta=True)]
    assert len("".join(pieces)) == 2000, len("".join(pieces))


async def tools(model):
    agent, calls = Agent(model), []

    @agent.tool_plain
    def add(a: int, b: int) -> str:
        """Adds two numbers."""
        calls.append((a, b))
        return str(a + b)

    reply = await agent.run(CALLS)
    assert calls == [(1, 2), (3, 4)], calls
    assert reply.output.startswith("Sum") and "7" in reply.output, reply


async def structured_output(model):
    reply = await Agent(model, output_type=NativeOutput(Sum)).run(FORM)
    assert reply.output == Sum(total=10), reply


main(["pydantic-ai-slim"], {
    "text": each(text),
    "streaming": each(streaming),
    "tools": each(tools),
    "structured output": each(structured_output),
})
