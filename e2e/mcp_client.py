"""Hob's memory through the official Python SDK: over `hob mcp` as the owner, over /mcp as an app.

    mcp_client.py '{"command": [...], "env": {...}, "cwd": "...", "url": "...", "token": "..."}'

Prints one line of JSON when all is as it should be; anything else is an exception and exit 1. The SDK
checks every result against the tool's declared output schema. mcp_client.mjs does the same.
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import httpx2
from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

TOOLS = [
    "memory_capture",
    "memory_correct",
    "memory_forget",
    "memory_recall",
    "memory_stats",
    "memory_timeline",
]

# A wrong call, and words that its error must contain.
WRONG = [
    ("memory_recall", {"cue": 7}, ["cue"]),
    ("memory_recall", {}, ["cue"]),
    ("memory_recall", {"cue": "x", "since": "yesterday"}, ["since"]),
    ("memory_recall", {"cue": "x", "colour": "red"}, ["colour"]),
    ("memory_capture", {"text": "x", "role": "robot"}, ["role"]),
    ("memory_capture", {"text": "  "}, ["text"]),
    ("memory_correct", {"record_id": "x"}, ["text"]),
    ("memory_forget", {}, ["record_id", "session_id"]),
    ("memory_timeline", {"limit": "many"}, ["limit"]),
    ("memory_stats", {"all": True}, ["all"]),
]


def stdio(told):
    command, *arguments = told["command"]
    return StdioServerParameters(command=command, args=arguments, env=told["env"], cwd=told["cwd"])


@asynccontextmanager
async def over_stdio(told):
    async with stdio_client(stdio(told)) as (read, write), ClientSession(read, write) as session:
        yield session


@asynccontextmanager
async def over_http(told, token):
    headers = {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers) as client,
        streamable_http_client(told["url"], http_client=client) as (read, write),
        ClientSession(read, write) as session,
    ):
        yield session


async def call(session, tool, **arguments):
    result = await session.call_tool(tool, arguments)
    assert not result.is_error, (tool, arguments, result.content)
    assert json.loads(result.content[0].text) == result.structured_content, tool
    return result.structured_content


async def recall(session, cue, **more):
    return (await call(session, "memory_recall", cue=cue, **more))["hits"]


async def exercise(session, tag):
    """Every tool, from an empty memory; returns the record that is left, which is superseded."""
    begun = await session.initialize()
    # The versions that begin with a handshake end with this one.
    assert begun.protocol_version == "2025-11-25", begun
    assert begun.server_info.name == "hob", begun
    assert begun.instructions, begun
    tools = (await session.list_tools()).tools
    assert sorted(tool.name for tool in tools) == TOOLS, tools
    for tool in tools:
        assert tool.output_schema and tool.output_schema["type"] == "object", tool

    before = await call(session, "memory_stats")
    assert (before["turns"], before["last_ts"], before["health"]) == (0, None, "ok"), before

    wrong = f"The {tag} ferry leaves at six from pier nine."
    first = await call(session, "memory_capture", text=wrong, cue="boat timetable")
    assert first["duplicate"] is False, first
    again = await call(session, "memory_capture", text=wrong, cue="boat timetable")
    assert again == {"record_id": first["record_id"], "duplicate": True}, again
    hits = await recall(session, f"when does the {tag} ferry leave?")
    assert [hit["text"] for hit in hits] == [wrong], hits
    assert (hits[0]["record_id"], hits[0]["role"]) == (first["record_id"], "user"), hits
    assert [hit["text"] for hit in await recall(session, "boat timetable")] == [wrong]

    right = f"The {tag} ferry leaves at seven from pier two."
    second = await call(session, "memory_correct", record_id=first["record_id"], text=right)
    assert second["superseded"] == first["record_id"], second
    hits = await recall(session, f"when does the {tag} ferry leave?")
    assert [hit["text"] for hit in hits] == [right, wrong], hits
    assert hits[1]["superseded_by"] == second["record_id"], hits

    turns = (await call(session, "memory_timeline"))["turns"]
    assert [turn["text"] for turn in turns] == [wrong, right], turns
    around = await call(session, "memory_timeline", around=second["record_id"], limit=1)
    assert [turn["text"] for turn in around["turns"]] == [right], around
    stats = await call(session, "memory_stats")
    assert (stats["turns"], stats["superseded"], stats["health"]) == (2, 1, "ok"), stats
    assert stats["last_ts"], stats

    gone = await call(session, "memory_forget", record_id=second["record_id"])
    question = f"when does the {tag} ferry leave?"
    if "request_id" in gone:
        # The owner has to confirm it.
        assert gone["count"] == 0, gone
        assert right in [hit["text"] for hit in await recall(session, question)]
    else:
        assert gone == {"count": 1}, gone
        gone = await call(session, "memory_forget", record_id=second["record_id"])
        assert gone == {"count": 0}, gone
        hits = await recall(session, question)
        assert [hit["text"] for hit in hits] == [wrong], hits

    for tool, arguments, words in WRONG:
        result = await session.call_tool(tool, arguments)
        said = result.content[0].text
        assert result.is_error and all(word in said for word in words), (tool, arguments, said)
    return first["record_id"]


async def stranger(session, record, text):
    """Somebody else's record is not there, whatever is tried."""
    for project in ["*", None]:
        scope = {} if project is None else {"project": project}
        hits = await recall(session, text, **scope)
        assert text not in [hit["text"] for hit in hits], hits
        turns = (await call(session, "memory_timeline", limit=500, **scope))["turns"]
        assert text not in [turn["text"] for turn in turns], turns
    gone = await call(session, "memory_forget", record_id=record)
    assert gone == {"count": 0}, gone
    for tool, arguments in [
        ("memory_correct", {"record_id": record, "text": "mine now"}),
        ("memory_timeline", {"around": record}),
    ]:
        result = await session.call_tool(tool, arguments)
        assert result.is_error and record in result.content[0].text, result


async def refused(told, token):
    """A wrong token gets no session."""
    try:
        async with over_http(told, token) as session:
            await session.initialize()
    except BaseException as error:  # The SDK wraps it in groups of its own.
        return repr(error)
    raise AssertionError("a wrong token was let in")


async def main(told):
    async with over_stdio(told) as owner, over_http(told, told["token"]) as app:
        left = {
            "owner": (await exercise(owner, "owner"), "The owner ferry leaves at six from pier nine."),
            "app": (await exercise(app, "app"), "The app ferry leaves at six from pier nine."),
        }
        await stranger(app, *left["owner"])
        await stranger(owner, *left["app"])
        for session, name in [(owner, "owner"), (app, "app")]:
            hits = await recall(session, "ferry", project="*")
            texts = [hit["text"] for hit in hits]
            assert left[name][1] in texts and all(f"The {name} ferry" in text for text in texts), hits
    # The SDK's own way to connect, with the newest handshake that both sides support.
    async with Client(stdio_client(stdio(told))) as client:
        result = await client.call_tool("memory_recall", {"cue": "owner ferry"})
        # The owner has not confirmed that the correction is to be forgotten.
        assert len(result.structured_content["hits"]) == 2, result
        protocol = client.session.protocol_version
    await refused(told, "hob_wrong")
    print(json.dumps({"ok": True, "tools": len(TOOLS), "protocol": protocol}))


asyncio.run(main(json.loads(sys.argv[1])))
