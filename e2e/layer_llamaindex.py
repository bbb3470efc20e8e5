"""LlamaIndex against Hob, as an OpenAI-compatible model."""

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

from layer_told import CALLS, TOKEN, URL, main

MODEL = OpenAILike(model="claude", api_base=f"{URL}/v1", api_key=TOKEN, is_chat_model=True, is_function_calling_model=True,
                   context_window=200_000, max_retries=0)


def text():
    history = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="one")]
    reply = MODEL.chat(history)
    assert reply.message.content == "echo: one", reply
    history += [reply.message, ChatMessage(role="user", content="two")]
    assert MODEL.chat(history).message.content == "echo: two"


def streaming():
    pieces = [piece.delta or "" for piece in MODEL.stream_chat([ChatMessage(role="user", content="[[big 2000]]")])]
    assert len("".join(pieces)) == 2000, len("".join(pieces))


def tools():
    calls = []

    def add(a: int, b: int) -> str:
        """Adds two numbers."""
        calls.append((a, b))
        return str(a + b)

    async def run():
        return await FunctionAgent(tools=[add], llm=MODEL, system_prompt="Be brief.").run(user_msg=CALLS)

    reply = str(asyncio.run(run()))
    assert calls == [(1, 2), (3, 4)], calls
    assert reply.startswith("Sum") and "7" in reply, reply


main(["llama-index-core", "llama-index-llms-openai-like"], {"text": text, "streaming": streaming, "tools": tools})
