"""Anthropic's own Python SDK against Hob: see sdk_told.py. sdk_anthropic.mjs does the same."""

import asyncio
import time
from pathlib import Path

import anthropic
import pydantic
from anthropic import Anthropic, AsyncAnthropic, beta_tool

from sdk_told import (
    CALLS, DRIVERS, HEADER, PAIR, REAL, SYSTEM, TOLD, WORK, agents, app, ask, done, long_work, nothing_left,
    only_agent, path_in, png, raises, restart, said, timed, wait_for, system_prompt,
)

MODEL = "sonnet"


def client(kind, **more):
    return Anthropic(base_url=TOLD["url"], api_key=app(kind)["token"], **{"max_retries": 0, **more})


def told(messages, **more):
    return {"model": MODEL, "max_tokens": 1024, "messages": messages, **more}


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def texts(message):
    assert all(block.type == "text" for block in message.content), message
    return [block.text for block in message.content]


def create(caller, messages, **more):
    """One turn: whether its process was warm, seeded or fresh, and the message."""
    raw = caller.messages.with_raw_response.create(**told(messages, **more))
    message = raw.parse()
    assert (message.type, message.role) == ("message", "assistant"), message
    assert message.id.startswith("msg_") and raw.headers["request-id"].startswith("req_"), message
    assert message.stop_reason == "end_turn", message
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0, message
    return raw.headers[HEADER], message


def raw_stream(caller, messages, kind, **more):
    """One turn as raw events: whether its process was warm, seeded or fresh, and its texts."""
    raw = caller.messages.with_raw_response.create(**told(messages, stream=True, **more))
    events = list(raw.parse())
    names = [event.type for event in events]
    assert (names[0], names[-2:]) == ("message_start", ["message_delta", "message_stop"]), names
    found = []
    for event in events:
        if event.type == "content_block_start":
            assert event.index == len(found), events
            found.append("")
        if event.type == "content_block_delta":
            found[event.index] += event.delta.text
    assert names.count("content_block_stop") == len(found), names
    deltas = names.count("content_block_delta")
    assert deltas == len(found) if kind == "terminal" else deltas > len(found), (kind, names)
    assert events[-2].delta.stop_reason == "end_turn" and events[-2].usage.output_tokens > 0, events
    return raw.headers[HEADER], found


@timed
def ten_turns(kind):
    """One process, and every shape in which a client may send the answers back. Returns the conversation."""
    caller = client(kind)
    history, origins, words = [], [], []

    def turn(prompt, expected, echo):
        history.append(user(prompt))
        origin, message = create(caller, history, system=SYSTEM)
        assert texts(message) == expected, message
        origins.append(origin)
        words.append((prompt, expected))
        history.append(assistant(echo(message)))

    turn("one", ["echo: one"], lambda message: message.content[0].text)
    agent = only_agent(kind)
    turn("two", ["echo: two"], lambda message: [{"type": "text", "text": message.content[0].text}])
    work = [WORK % f"{kind}-{number}" for number in range(3)]
    turn(work[0], ["Looking.", "Found it."], lambda message: message.content)
    turn(work[1], ["Looking.", "Found it."], lambda message: message.content[-1].text)
    turn(work[2], ["Looking.", "Found it."], lambda message: "\n\n".join(texts(message)))
    turn(PAIR, ["Both."], lambda message: message.model_dump()["content"])
    turn("[[think Hm.]] [[say Thought.]]", ["Thought."], lambda message: message.content)
    for number in range(3):
        wait_for(Path(app(kind)["cwd"]) / f"{kind}-{number}")

    # The helper of the SDK.
    history.append(user("[[big 3000]]"))
    with caller.messages.stream(**told(history, system=SYSTEM)) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
        origins.append(stream.response.headers[HEADER])
    assert "".join(pieces) == texts(message)[0] == stream.get_final_text(), len(pieces)
    assert len(texts(message)[0]) == 3000, texts(message)[0][:80]
    assert len(pieces) == 1 if kind == "terminal" else len(pieces) > 1, len(pieces)
    assert message.stop_reason == "end_turn", message
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0, message
    history.append(assistant(message.content))
    words.append(("[[big 3000]]", texts(message)))

    # The raw events, over a tool cycle.
    prompt = '[[big 2000]] [[tool Bash {"command":"true"}]] [[big 1500]]'
    history.append(user([{"type": "text", "text": prompt, "cache_control": {"type": "ephemeral"}}]))
    origin, found = raw_stream(caller, history, kind, system=SYSTEM)
    assert [len(text) for text in found] == [2000, 1500], found
    origins.append(origin)
    words.append((prompt, found))
    history.append(assistant([{"type": "text", "text": text} for text in found]))

    turn("ten", ["echo: ten"], lambda message: message.content)
    assert origins == ["fresh"] + ["warm"] * 9, origins
    assert only_agent(kind)["pid"] == agent["pid"]
    assert f"--model={MODEL}" in agent["command"] and SYSTEM not in agent["command"], agent
    assert SYSTEM in system_prompt(agent["command"]), agent
    if REAL:
        request = ask("request", holding="ten")
        assert SYSTEM in request["system"] and MODEL in request["model"], request
    return history, words


@timed
def after_restart(kind, history, words):
    caller = client(kind)
    history.append(user("[[say Before: {history}]] eleven"))
    origin, message = create(caller, history, system=SYSTEM)
    assert origin == "seeded", origin
    if REAL:
        expected = []
        for prompt, answers in words:
            expected += [("user", prompt)] + [("assistant", answer) for answer in answers]
        # What the client left out is no longer part of the conversation.
        del expected[expected.index(("user", words[3][0])) + 1]
        joined = expected.index(("user", words[4][0])) + 1
        expected[joined:joined + 2] = [("assistant", "\n\n".join(words[4][1]))]
        expected.append(("user", history[-1]["content"]))
        assert said("eleven") == expected, (said("eleven"), expected)
    else:
        for word in ["one", "echo: two", "Found it.", "Thought.", "of a long answer", "echo: ten"]:
            assert word in texts(message)[0], (word, message)
    history += [assistant(message.content), user("twelve")]
    assert create(caller, history, system=SYSTEM)[0] == "warm"


@timed
def with_words_before(kind):
    """The history goes before the first prompt."""
    history = [user("alpha"), assistant("beta"), user([{"type": "text", "text": "gamma"}])]
    origin, message = create(client(kind), history)
    assert origin == "seeded", origin
    for word in ["Previous conversation context:", "[User]: alpha", "[Assistant]: beta", "gamma"]:
        assert word in texts(message)[0], (word, message)
    history += [assistant(message.content), user("delta")]
    origin, message = create(client(kind), history)
    assert (origin, texts(message)) == ("warm", ["echo: delta"]), (origin, message)


@timed
def refused_at_once(kind):
    caller = client(kind)
    stranger = Anthropic(base_url=TOLD["url"], api_key="hob_wrong", max_retries=0)
    error = raises(anthropic.AuthenticationError, lambda: create(stranger, [user("x")]), "token")
    assert error.body["error"]["type"] == "authentication_error", error.body
    raises(anthropic.AuthenticationError, lambda: stranger.models.list())
    bad = anthropic.BadRequestError
    error = raises(bad, lambda: create(caller, []), "messages")
    assert error.body["error"]["type"] == "invalid_request_error", error.body
    assert error.request_id.startswith("req_"), error
    raises(bad, lambda: create(caller, [user("x"), assistant("y")]), "last message")
    tool = {"type": "web_search_20250305", "name": "web_search"}
    raises(bad, lambda: create(caller, [user("x")], tools=[tool]), "tools[0].type", "web_search")
    raises(bad, lambda: create(caller, [user("x")], system=[{"type": "image"}]), "system")
    far = {"type": "image", "source": {"type": "url", "url": "https://example.com/x.png"}}
    raises(bad, lambda: create(caller, [user([far])]), "base64")
    # A token as the other header, and what has no effect.
    bearer = Anthropic(base_url=TOLD["url"], auth_token=app(kind)["token"], max_retries=0)
    found = list(bearer.models.list())
    assert [model.id for model in found][:2] == ["claude", "opus"], found
    assert bearer.models.retrieve("sonnet").lifecycle == "active"
    assert bearer.models.retrieve("claude-opus-5-5").id == "claude-opus-5-5"
    raises(anthropic.NotFoundError, lambda: bearer.models.retrieve("nosuch"))


@timed
def failed_turns(kind):
    """The model's own errors. Each ends its process, and the next call works."""
    caller = client(kind)
    for status, expected in [
        (429, anthropic.RateLimitError), (529, anthropic.OverloadedError),
        (404, anthropic.NotFoundError), (400, anthropic.BadRequestError),
        (500, anthropic.InternalServerError),
    ]:
        if REAL and status != 429:
            continue  # One is enough for the real agent: each ends a process that starts slowly.
        if REAL and status == 404:
            raises(expected, lambda: create(caller, [user("x")], model="nonexist-1"), "nonexist-1")
        else:
            prompt = f"[[error {status} it is so]]"
            raises(expected, lambda: create(caller, [user(prompt)]), "it is so")
    if not REAL:
        raises(anthropic.InternalServerError, lambda: create(caller, [user("[[crash]]")]), "claude")
        # Once a stream has begun, an error is an event in it.
        def streamed():
            with caller.messages.stream(**told([user("[[error 529 it is so]]")])) as stream:
                stream.until_done()

        try:
            streamed()
        except anthropic.APIStatusError as error:
            assert error.body["error"]["type"] == "overloaded_error", error.body
        else:
            raise AssertionError("the stream did not fail")
    nothing_left(kind)


@timed
def broken_off(kind):
    """A closed stream, a timeout and a cancelled task: nothing is left, and the next call works."""
    caller = client(kind)
    prompt, pid = long_work(kind)
    stream = caller.messages.create(**told([user(prompt)], stream=True))
    assert next(iter(stream)).type == "message_start"
    tool = int(wait_for(pid))
    pids = [agent["pid"] for agent in agents(kind)] + [tool]
    assert len(pids) == 2, pids
    stream.close()
    ask("gone", pids=pids)
    nothing_left(kind)

    if not REAL:
        prompt, pid = long_work(kind)
        with caller.messages.stream(**told([user(prompt)])) as stream:
            tool = int(wait_for(pid))
        ask("gone", pids=[tool])

    patient = caller.with_options(timeout=4 if REAL else 1)
    raises(anthropic.APITimeoutError, lambda: create(patient, [user("[[say x]] [[hang]]")]))
    nothing_left(kind)

    async def cancelled():
        prompt, pid = long_work(kind)
        async with AsyncAnthropic(
            base_url=TOLD["url"], api_key=app(kind)["token"], max_retries=0
        ) as caller:
            task = asyncio.create_task(caller.messages.create(**told([user(prompt)])))
            tool = int(await asyncio.to_thread(wait_for, pid))
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return tool
        raise AssertionError("the task was not cancelled")

    if not REAL:
        ask("gone", pids=[asyncio.run(cancelled())])
        nothing_left(kind)
    system = [{"type": "text", "text": "First words."}, {"type": "text", "text": "Second words."}]
    origin, message = create(caller, [user("and now")], system=system, stop_sequences=["x"],
                             metadata={"user_id": "u"}, extra_body={"temperature": 0.5, "top_k": 3})
    assert (origin, texts(message)) == ("fresh", ["echo: and now"]), (origin, message)
    command = only_agent(kind)["command"]
    assert "First words.\n\nSecond words." in system_prompt(command), command
    if REAL:
        request = ask("request", holding="and now")
        assert "First words." in request["system"] and "Second words." in request["system"], request


class Sum(pydantic.BaseModel):
    total: int


@timed
def own_tools(kind):
    """The client's tools through the SDK's runner and in a stream, answers with a form, and token counts."""
    caller, calls = client(kind), []

    @beta_tool
    def add(a: int, b: int) -> str:
        """Adds two numbers."""
        calls.append((a, b))
        return str(a + b)

    runner = caller.beta.messages.tool_runner(
        model=MODEL, max_tokens=1024, tools=[add], messages=[user(CALLS)])
    message = runner.until_done()
    assert calls == [(1, 2), (3, 4)], calls
    assert (message.content[-1].text, message.stop_reason) == ("Done.", "end_turn"), message
    if REAL:
        request = ask("request", holding="Adding.")
        assert "mcp__app__add" in request["tools"], request["tools"]

    history = [user('[[tool mcp__app__add {"a":5,"b":6}]] [[say Sum.]]')]
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    tools = [{"name": "add", "description": "Adds.", "input_schema": schema}]
    with caller.messages.stream(**told(history, tools=tools)) as stream:
        message = stream.get_final_message()
    (call,) = message.content
    assert (call.type, call.name, call.input) == ("tool_use", "add", {"a": 5, "b": 6}), message
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "11"}
    history += [assistant(message.content), user([result])]
    origin, message = create(caller, history, tools=tools)
    assert (origin, texts(message)) == ("warm", ["Sum."]), (origin, message)

    message = caller.messages.parse(
        **told([user('[[say {"total": 10}]]')]), output_format=Sum)
    assert message.parsed_output == Sum(total=10), message
    wrong = [user('[[say {"total": "ten"}]]')]
    # The SDK would ask twice more, if Hob did not forbid it.
    caller = client(kind, max_retries=2)
    error = raises(anthropic.InternalServerError,
                   lambda: caller.messages.parse(**told(wrong), output_format=Sum), "form")
    assert error.response.request.headers["x-stainless-retry-count"] == "0", error
    assert caller.messages.count_tokens(model=MODEL, messages=history).input_tokens > 0


@timed
def pictures(kind):
    caller = client(kind)
    data, encoded = png()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded}}
    history = [user([image, {"type": "text", "text": "what is it?"}])]
    origin, message = create(caller, history)
    path = path_in(texts(message)[0])
    assert Path(path).read_bytes() == data and "what is it?" in texts(message)[0], message
    # The agent itself can read it, in the same process.
    history += [assistant(message.content), user(
        '[[tool Bash {"command":"cp %s seen-%s.png"}]] [[say Copied.]]' % (path, kind))]
    origin, message = create(caller, history)
    assert (origin, texts(message)) == ("warm", ["Copied."]), (origin, message)
    assert (Path(app(kind)["cwd"]) / f"seen-{kind}.png").read_bytes() == data


@timed
def agent_sessions():
    """A session of Anthropic's Managed Agents with a tool of the client, followed by its stream."""
    api = client("terminal").beta
    environment = api.environments.create(name="here", config={"type": "cloud"})
    schema = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}
    agent = api.agents.create(name="adder", model="claude", system="Be kind.", tools=[
        {"type": "agent_toolset_20260401"},
        {"type": "custom", "name": "add", "description": "Adds.", "input_schema": schema},
    ])
    session = api.sessions.create(agent=agent.id, environment_id=environment.id, title="first", metadata={"k": "v"})
    assert (session.status, session.agent.version, session.metadata) == ("idle", 1, {"k": "v"}), session
    prompt = '[[say First.]] [[tool Bash {"command":"echo 12"}]] [[tool mcp__app__add {"a": 20}]] [[say Last.]]'
    content, seen = [{"type": "text", "text": prompt}], []
    with api.sessions.events.stream(session.id) as stream:
        sent = api.sessions.events.send(session.id, events=[{"type": "user.message", "content": content}])
        for event in stream:
            assert type(event).__name__.startswith("BetaManagedAgents"), event
            seen.append(event)
            if event.type != "session.status_idle":
                continue
            if event.stop_reason.type == "end_turn":
                break
            assert event.stop_reason.type == "requires_action", event
            [call] = event.stop_reason.event_ids
            assert [one.input for one in seen if one.id == call] == [{"a": 20}], seen
            output = [{"type": "text", "text": "42"}]
            api.sessions.events.send(session.id, events=[
                {"type": "user.custom_tool_result", "custom_tool_use_id": call, "content": output}])
    assert seen[0].id == sent.data[0].id, (seen[0], sent)
    words = [event.content[0].text for event in seen if event.type == "agent.message"]
    assert words == ["First.", "Last."], words
    [result] = [event for event in seen if event.type == "agent.tool_result"]
    assert result.content[0].text == "12", result
    # The list has the events of the stream.
    listed = list(api.sessions.events.list(session.id, limit=3))
    assert [event.id for event in listed] == [event.id for event in seen], (listed, seen)
    restart()
    again = client("terminal").beta.sessions
    content = [{"type": "text", "text": "[[say Yes.]]"}]
    with again.events.stream(session.id) as stream:
        again.events.send(session.id, events=[{"type": "user.message", "content": content}])
        answer = next(event for event in stream if event.type == "agent.message")
    assert answer.content[0].text == "Yes.", answer
    # An interrupt ends the turn, and the session goes on.
    content = [{"type": "text", "text": '[[say Begun.]] [[tool Bash {"command":"exec sleep 1000"}]]'}]
    with again.events.stream(session.id) as stream:
        again.events.send(session.id, events=[{"type": "user.message", "content": content}])
        for event in stream:
            if event.type == "agent.message":
                again.events.send(session.id, events=[{"type": "user.interrupt"}])
            if event.type == "session.status_idle":
                break
    content = [{"type": "text", "text": "[[say On.]]"}]
    with again.events.stream(session.id) as stream:
        again.events.send(session.id, events=[{"type": "user.message", "content": content}])
        answer = next(event for event in stream if event.type == "agent.message")
    assert answer.content[0].text == "On.", answer
    assert again.delete(session.id).type == "session_deleted"
    raises(anthropic.NotFoundError, lambda: again.retrieve(session.id), "session")


@timed
def memory_stores():
    """A memory store: paths, versions, preconditions, redaction."""
    api = client("terminal").beta.memory_stores
    store = api.create(name="Team notes", description="What the team knows.", metadata={"k": "v"})
    memory = api.memories.create(store.id, path="/harbour/crane.md", content="The crane is green.")
    assert (memory.type, memory.content) == ("memory", None), memory
    read = api.memories.retrieve(memory.id, memory_store_id=store.id)
    assert read.content == "The crane is green.", read
    digest = {"type": "content_sha256", "content_sha256": read.content_sha256}
    words = "The crane is yellow."

    def change(content):
        api.memories.update(memory.id, memory_store_id=store.id, content=content, precondition=digest)

    change(words)
    raises(anthropic.ConflictError, lambda: change("x"), "another text")
    api.memories.create(store.id, path="/gate.md", content="")
    raises(anthropic.ConflictError, lambda: api.memories.create(store.id, path="/gate.md", content=""), "gate.md")
    items = list(api.memories.list(store.id, depth=1, limit=1))
    assert [(item.type, item.path) for item in items] == [("memory", "/gate.md"), ("memory_prefix", "/harbour/")], items
    versions = list(api.memory_versions.list(store.id, memory_id=memory.id, view="full", limit=1))
    assert [one.content for one in versions] == [words, "The crane is green."], versions
    redacted = api.memory_versions.redact(versions[1].id, memory_store_id=store.id)
    assert redacted.content is None and redacted.redacted_at, redacted
    assert api.memories.delete(memory.id, memory_store_id=store.id).type == "memory_deleted"
    assert api.update(store.id, name="Notes").name == "Notes"
    assert api.archive(store.id).archived_at and list(api.list()) == []
    assert [one.id for one in api.list(include_archived=True)] == [store.id]
    assert api.delete(store.id).type == "memory_store_deleted"


def ended(api, batch):
    """Waits until a batch has ended."""
    end = time.monotonic() + 60
    while api.retrieve(batch).processing_status != "ended":
        assert time.monotonic() < end, "the batch does not end"
        time.sleep(0.05)


@timed
def batches():
    """A batch of messages with a wrong one among them, and a cancelled batch."""
    api = client("stream").messages.batches

    def request(name, messages):
        return {"custom_id": name, "params": told(messages)}

    made = api.create(requests=[request("a", [user("one")]), request("b", []), request("c", [user("two")])])
    ended(api, made.id)
    results = {one.custom_id: one.result for one in api.results(made.id)}
    assert {name: one.type for name, one in results.items()} == {"a": "succeeded", "b": "errored", "c": "succeeded"}
    assert results["b"].error.error.type == "invalid_request_error", results
    assert [one.id for one in api.list(limit=1)] == [made.id]
    long = api.create(requests=[request("a", [user("[[sleep 600000]]")])])
    assert api.cancel(long.id).processing_status in ("canceling", "ended")
    ended(api, long.id)
    assert [one.result.type for one in api.results(long.id)] == ["canceled"]
    assert api.delete(long.id).type == "message_batch_deleted"
    api.delete(made.id)


def limits():
    """Limits of one live agent and six turns per minute."""
    caller = client("terminal")
    stream = caller.messages.create(**told([user("[[hang]]")], stream=True))
    assert next(iter(stream)).type == "message_start"
    error = raises(anthropic.OverloadedError, lambda: create(caller, [user("x")]), "limit")
    assert error.body["error"]["type"] == "overloaded_error", error.body
    assert error.response.headers["retry-after"] == "1", error.response.headers
    stream.close()
    nothing_left("terminal")
    # The slot is free a moment later, and the SDK retries by itself.
    assert create(client("terminal", max_retries=2), [user("y")])[0] == "fresh"
    # A warm process of one app is evicted for another app's turn.
    assert create(client("stream"), [user("z")])[0] == "fresh"
    assert agents("terminal") == []

    caller, history = client("stream-broken"), [user("one")]
    for number in range(6):
        origin, message = create(caller, history)
        assert origin == ("warm" if number else "fresh"), (number, origin)
        history = history + [assistant(message.content), user("next")]
    error = raises(anthropic.RateLimitError, lambda: create(caller, history), "minute")
    assert int(error.response.headers["retry-after"]) > 0, error.response.headers


@timed
def all_cases():
    # Starting the real agent is slow. Cases that start many agents run once per SDK, some with one
    # driver and some with the other, and each does only a part of them.
    own, other = (["terminal"], ["stream"]) if REAL else (DRIVERS, DRIVERS)
    kept = {kind: ten_turns(kind) for kind in DRIVERS}
    for kind in other:
        pictures(kind)
        own_tools(kind)
    agent_sessions()
    memory_stores()
    if not REAL:
        batches()
    restart()
    for kind in own:
        after_restart(kind, *kept[kind])
    if not REAL:
        restart(history="concat_message")
        for kind in DRIVERS:
            with_words_before(kind)
        restart()
    refused_at_once("terminal")
    for kind in own:
        failed_turns(f"{kind}-broken")
        broken_off(f"{kind}-broken")


{"all": all_cases, "limits": limits}[TOLD["case"]]()
done()
