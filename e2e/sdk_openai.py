"""OpenAI's own Python SDK against Hob: see sdk_told.py. sdk_openai.mjs does the same."""

import asyncio
import json
import time
from pathlib import Path

import openai
import pydantic
from openai import AsyncOpenAI, OpenAI

from sdk_told import (
    CALLS, DRIVERS, HEADER, PAIR, REAL, SYSTEM, TOLD, WORK, agents, app, ask, done, long_work, nothing_left,
    only_agent, path_in, png, raises, restart, said, timed, wait_for, system_prompt,
)

MODEL = "sonnet"


def client(kind, **more):
    base = f"{TOLD['url']}/v1"
    return OpenAI(base_url=base, api_key=app(kind)["token"], **{"max_retries": 0, **more})


def told(messages, **more):
    return {"model": MODEL, "messages": messages, **more}


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def system(content=SYSTEM):
    return {"role": "system", "content": content}


def create(caller, messages, **more):
    """One turn: whether its process was warm, seeded or fresh, and the message."""
    raw = caller.chat.completions.with_raw_response.create(**told(messages, **more))
    completion = raw.parse()
    assert completion.object == "chat.completion" and len(completion.choices) == 1, completion
    assert completion.id.startswith("chatcmpl-") and completion.created > 0, completion
    choice = completion.choices[0]
    assert (choice.finish_reason, choice.message.role) == ("stop", "assistant"), completion
    assert choice.message.tool_calls is None, completion
    usage = completion.usage
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0, completion
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, completion
    return raw.headers[HEADER], choice.message


def stream(caller, messages, kind, **more):
    """One turn in pieces: whether its process was warm, seeded or fresh, and its text."""
    options = {"include_usage": True}
    raw = caller.chat.completions.with_raw_response.create(
        **told(messages, stream=True, stream_options=options, **more))
    chunks = list(raw.parse())
    assert all(chunk.object == "chat.completion.chunk" for chunk in chunks), chunks
    assert len({chunk.id for chunk in chunks}) == 1, chunks
    assert chunks[0].choices[0].delta.role == "assistant", chunks[0]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0, chunks[-1]
    assert chunks[-2].choices[0].finish_reason == "stop", chunks[-2]
    pieces = [chunk.choices[0].delta.content for chunk in chunks[:-1]]
    pieces = [piece for piece in pieces if piece]
    blocks = [piece for piece in pieces if piece != "\n\n"]
    assert len(blocks) == 2 if kind == "terminal" else len(blocks) > 2, (kind, len(blocks))
    return raw.headers[HEADER], "".join(pieces)


@timed
def ten_turns(kind):
    """One process, and every shape in which a client may send the answers back. Returns the conversation."""
    caller = client(kind)
    history, origins, words = [system()], [], []

    def turn(prompt, expected, echo):
        history.append(user(prompt))
        origin, message = create(caller, history)
        assert message.content == expected, message
        origins.append(origin)
        history.append(echo(message))
        words.append((prompt, expected))

    turn("one", "echo: one", lambda message: assistant(message.content))
    agent = only_agent(kind)
    parts = lambda message: assistant([{"type": "text", "text": message.content}])
    turn("two", "echo: two", parts)
    work = [WORK % f"{kind}-{number}" for number in range(3)]
    both = "Looking.\n\nFound it."
    turn(work[0], both, lambda message: message)
    turn(work[1], both, lambda message: assistant("Found it."))
    turn(work[2], both, parts)
    turn(PAIR, "Both.", lambda message: message.model_dump(exclude_none=True))
    turn("[[think Hm.]] [[say Thought.]]", "Thought.", lambda message: message)
    for number in range(3):
        wait_for(Path(app(kind)["cwd"]) / f"{kind}-{number}")

    prompt = '[[big 2000]] [[tool Bash {"command":"true"}]] [[big 1500]]'
    history.append(user([{"type": "text", "text": prompt}]))
    origin, text = stream(caller, history, kind)
    assert len(text) == 3502, len(text)
    origins.append(origin)
    words.append((prompt, text))
    history.append(assistant(text))

    # The helper of the SDK.
    history.append(user("[[big 3000]]"))
    with caller.chat.completions.stream(**told(history)) as helper:
        pieces = [event.delta for event in helper if event.type == "content.delta" and event.delta]
        message = helper.get_final_completion().choices[0].message
        origins.append(helper._response.headers[HEADER])
    assert "".join(pieces) == message.content and len(message.content) == 3000, len(message.content)
    assert len(pieces) == 1 if kind == "terminal" else len(pieces) > 1, len(pieces)
    words.append(("[[big 3000]]", message.content))
    history.append(assistant(message.content))

    turn("ten", "echo: ten", lambda message: message)
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
    origin, message = create(caller, history)
    assert origin == "seeded", origin
    if REAL:
        expected = []
        for prompt, answer in words:
            expected += [("user", prompt), ("assistant", answer)]
        # What the client left out is no longer part of the conversation.
        expected[expected.index(("user", words[3][0])) + 1] = ("assistant", "Found it.")
        expected.append(("user", history[-1]["content"]))
        assert said("eleven") == expected, (said("eleven"), expected)
    else:
        for word in ["one", "echo: two", "Found it.", "Thought.", "of a long answer", "echo: ten"]:
            assert word in message.content, (word, message)
    history += [message, user("twelve")]
    assert create(caller, history)[0] == "warm"


@timed
def with_words_before(kind):
    """The history goes before the first prompt."""
    history = [user("alpha"), assistant("beta"), user([{"type": "text", "text": "gamma"}])]
    origin, message = create(client(kind), history)
    assert origin == "seeded", origin
    for word in ["Previous conversation context:", "[User]: alpha", "[Assistant]: beta", "gamma"]:
        assert word in message.content, (word, message)
    history += [message, user("delta")]
    origin, message = create(client(kind), history)
    assert (origin, message.content) == ("warm", "echo: delta"), (origin, message)


@timed
def refused_at_once(kind):
    caller = client(kind)
    stranger = OpenAI(base_url=f"{TOLD['url']}/v1", api_key="hob_wrong", max_retries=0)
    error = raises(openai.AuthenticationError, lambda: create(stranger, [user("x")]), "token")
    assert error.code == "invalid_api_key", error
    raises(openai.AuthenticationError, lambda: stranger.models.list())
    bad = openai.BadRequestError
    error = raises(bad, lambda: create(caller, []), "messages")
    assert (error.type, error.param) == ("invalid_request_error", "messages"), error
    raises(bad, lambda: create(caller, [user("x"), assistant("y")]), "last message")
    raises(bad, lambda: create(caller, [system()]), "messages")
    tool = {"type": "custom", "custom": {"name": "f"}}
    error = raises(bad, lambda: create(caller, [user("x")], tools=[tool]), "custom")
    assert error.param == "tools[0].type", error
    raises(bad, lambda: create(caller, [user("x")], n=2), "n")
    far = {"type": "image_url", "image_url": {"url": "https://example.com/x.png"}}
    raises(bad, lambda: create(caller, [user([far])]), "data:")
    found = list(caller.models.list())
    assert [model.id for model in found][:2] == ["claude", "opus"], found
    assert caller.models.retrieve("sonnet").object == "model"
    raises(openai.NotFoundError, lambda: caller.models.retrieve("nosuch"))


@timed
def failed_turns(kind):
    """The model's own errors. Each ends its process, and the next call works."""
    caller = client(kind)
    for status, expected in [
        (429, openai.RateLimitError), (529, openai.InternalServerError),
        (404, openai.NotFoundError), (400, openai.BadRequestError),
        (500, openai.InternalServerError),
    ]:
        if REAL and status != 404:
            continue  # One is enough for the real agent: each ends a process that starts slowly.
        if REAL and status == 404:
            raises(expected, lambda: create(caller, [user("x")], model="nonexist-1"), "nonexist-1")
        else:
            prompt = f"[[error {status} it is so]]"
            error = raises(expected, lambda: create(caller, [user(prompt)]), "it is so")
            assert error.status_code == (503 if status == 529 else status), error
    if not REAL:
        raises(openai.InternalServerError, lambda: create(caller, [user("[[crash]]")]), "claude")

        # Once a stream has begun, an error is a piece of it.
        def streamed():
            return list(caller.chat.completions.create(**told([user("[[error 529 it is so]]")], stream=True)))

        try:
            streamed()
        except openai.APIError as error:
            assert error.code == "overloaded" and "it is so" in str(error), error
        else:
            raise AssertionError("the stream did not fail")
    nothing_left(kind)


@timed
def broken_off(kind):
    """A closed stream, a timeout and a cancelled task: nothing is left, and the next call works."""
    caller = client(kind)
    prompt, pid = long_work(kind)
    pieces = caller.chat.completions.create(**told([user(prompt)], stream=True))
    assert next(iter(pieces)).choices[0].delta.role == "assistant"
    tool = int(wait_for(pid))
    pids = [agent["pid"] for agent in agents(kind)] + [tool]
    assert len(pids) == 2, pids
    pieces.close()
    ask("gone", pids=pids)
    nothing_left(kind)

    patient = caller.with_options(timeout=4 if REAL else 1)
    raises(openai.APITimeoutError, lambda: create(patient, [user("[[say x]] [[hang]]")]))
    nothing_left(kind)

    async def cancelled():
        prompt, pid = long_work(kind)
        base = f"{TOLD['url']}/v1"
        async with AsyncOpenAI(base_url=base, api_key=app(kind)["token"], max_retries=0) as caller:
            task = asyncio.create_task(caller.chat.completions.create(**told([user(prompt)])))
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
    messages = [system([{"type": "text", "text": "First words."}]),
                {"role": "developer", "content": "Second words."}, user('[[say {"and": "now"}]]')]
    origin, message = create(caller, messages, temperature=0.5, top_p=0.5, max_tokens=100, stop=["x"],
                             seed=1, user="u", n=1, response_format={"type": "json_object"})
    assert (origin, message.content) == ("fresh", '{"and": "now"}'), (origin, message)
    command = only_agent(kind)["command"]
    assert "First words.\n\nSecond words.\n\nAnswer with one JSON object" in system_prompt(command), command
    if REAL:
        request = ask("request", holding="[[say {")
        assert "First words." in request["system"] and "Second words." in request["system"], request


@timed
def pictures(kind):
    caller = client(kind)
    data, encoded = png()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}}
    history = [user([{"type": "text", "text": "what is it?"}, image])]
    origin, message = create(caller, history)
    path = path_in(message.content)
    assert Path(path).read_bytes() == data and "what is it?" in message.content, message
    # The agent itself can read it, in the same process.
    history += [message, user(
        '[[tool Bash {"command":"cp %s seen-%s.png"}]] [[say Copied.]]' % (path, kind))]
    origin, message = create(caller, history)
    assert (origin, message.content) == ("warm", "Copied."), (origin, message)
    assert (Path(app(kind)["cwd"]) / f"seen-{kind}.png").read_bytes() == data


class Sum(pydantic.BaseModel):
    total: int


class Add(pydantic.BaseModel):
    """Adds two numbers."""

    a: int
    b: int


@timed
def own_tools(kind):
    """The client's functions by hand and in a stream, and answers with a form."""
    caller, history, calls = client(kind), [user(CALLS)], []
    tools = [openai.pydantic_function_tool(Add, name="add")]
    while True:
        choice = caller.chat.completions.parse(**told(history, tools=tools)).choices[0]
        history.append(choice.message)
        if choice.finish_reason != "tool_calls":
            break
        for call in choice.message.tool_calls:
            found = call.function.parsed_arguments
            calls.append((found.a, found.b))
            result = {"role": "tool", "tool_call_id": call.id, "content": str(found.a + found.b)}
            history.append(result)
    assert calls == [(1, 2), (3, 4)], calls
    assert choice.message.content.endswith("Done."), choice

    history.append(user('[[tool mcp__app__add {"a":5,"b":6}]] [[say Sum.]]'))
    with caller.chat.completions.stream(**told(history, tools=tools)) as events:
        names = [event.type for event in events]
        choice = events.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.done" in names, names
    (call,) = choice.message.tool_calls
    assert json.loads(call.function.arguments) == {"a": 5, "b": 6}, choice
    history += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "11"}]
    origin, message = create(caller, history, tools=tools)
    assert (origin, message.content) == ("warm", "Sum."), (origin, message)

    answer = caller.chat.completions.parse(
        **told([user('[[say {"total": 10}]]')]), response_format=Sum)
    assert answer.choices[0].message.parsed == Sum(total=10), answer
    wrong = [user('[[say {"total": "ten"}]]')]
    # The SDK would ask twice more, if Hob did not forbid it.
    caller = client(kind, max_retries=2)
    error = raises(openai.InternalServerError,
                   lambda: caller.chat.completions.parse(**told(wrong), response_format=Sum), "form")
    assert error.response.request.headers["x-stainless-retry-count"] == "0", error


@timed
def responses(kind):
    """The Responses API: stored and continued, streamed, with functions and forms, in the background."""
    caller = client(kind)

    def respond(content, **more):
        raw = caller.responses.with_raw_response.create(model=MODEL, input=content, **more)
        response = raw.parse()
        assert response.status == "completed" and response.usage.total_tokens > 0, response
        return raw.headers[HEADER], response

    origin, first = respond("one", instructions=SYSTEM)
    assert (origin, first.output_text) == ("fresh", "echo: one"), first
    origin, second = respond("two", instructions=SYSTEM, previous_response_id=first.id)
    assert (origin, second.output_text) == ("warm", "echo: two"), (origin, second)
    assert caller.responses.retrieve(second.id) == second
    (item,) = caller.responses.input_items.list(second.id)
    assert item.content[0].text == "two", item
    assert caller.responses.input_tokens.count(model=MODEL, input="two words").input_tokens > 2

    # The whole conversation as items, as agent frameworks send it.
    items = [user("one"), *first.output, user("two"), *second.output, user("three")]
    origin, third = respond(items, instructions=SYSTEM, store=False)
    assert (origin, third.output_text) == ("warm", "echo: three"), (origin, third)
    raises(openai.NotFoundError, lambda: caller.responses.retrieve(third.id), third.id)

    class Add(pydantic.BaseModel):
        a: int
        b: int

    class Sum(pydantic.BaseModel):
        total: int

    tool = openai.pydantic_function_tool(Add, name="add")["function"]
    tools = [{"type": "function", **tool}]
    with caller.responses.stream(model=MODEL, input=CALLS, tools=tools) as events:
        names = [event.type for event in events]
        response = events.get_final_response()
    assert names[:2] == ["response.created", "response.in_progress"], names
    assert names[-1] == "response.completed", names
    calls = []
    while found := [item for item in response.output if item.type == "function_call"]:
        outputs = []
        for call in found:
            numbers = Add.model_validate_json(call.arguments)
            calls.append((numbers.a, numbers.b))
            outputs.append({"type": "function_call_output", "call_id": call.call_id,
                            "output": str(numbers.a + numbers.b)})
        origin, response = respond(outputs, tools=tools, previous_response_id=response.id)
        assert origin == "warm", origin
    assert calls == [(1, 2), (3, 4)], calls
    assert response.output_text.endswith("Done."), response

    parsed = caller.responses.parse(model=MODEL, input='[[say {"total": 10}]]', text_format=Sum)
    assert parsed.output_parsed == Sum(total=10), parsed

    later = caller.responses.create(model=MODEL, input="later", background=True)
    deadline = time.monotonic() + 120
    while later.status in ("queued", "in_progress"):
        assert time.monotonic() < deadline, later
        time.sleep(0.05)
        later = caller.responses.retrieve(later.id)
    assert (later.status, later.output_text) == ("completed", "echo: later"), later
    caller.responses.delete(later.id)
    raises(openai.NotFoundError, lambda: caller.responses.retrieve(later.id), later.id)
    # A stream that breaks off goes on after its last event.
    events = caller.responses.create(model=MODEL, input="[[big 3000]]", background=True, stream=True)
    seen = [event for event, _ in zip(events, range(6))]
    events.close()
    last = seen[-1].sequence_number
    rest = list(caller.responses.retrieve(seen[0].response.id, stream=True, starting_after=last))
    pieces = [event.delta for event in seen + rest if event.type == "response.output_text.delta"]
    assert len("".join(pieces)) == 3000 and rest[-1].type == "response.completed", (seen, rest)
    hanging = caller.responses.create(model=MODEL, input="[[hang]]", background=True)
    assert caller.responses.cancel(hanging.id).status == "cancelled"
    raises(openai.BadRequestError,
           lambda: respond("x", tools=[{"type": "web_search"}]), "web_search")


@timed
def conversations(kind):
    """The Conversations API: items, metadata, and responses that belong to a conversation."""
    caller = client(kind)
    talk = caller.conversations.create(
        items=[user("before"), assistant("noted")], metadata={"topic": "sums"})
    assert talk.object == "conversation" and talk.metadata == {"topic": "sums"}, talk
    assert caller.conversations.retrieve(talk.id) == talk
    first = caller.responses.create(model=MODEL, input="one", conversation=talk.id, temperature=0)
    assert first.conversation.id == talk.id and first.output_text == "echo: one", first
    raw = caller.responses.with_raw_response.create(
        model=MODEL, input="two", conversation={"id": talk.id}, temperature=0)
    assert raw.headers[HEADER] == "warm" and raw.headers["x-hob-ignored"] == "temperature", raw.headers
    with caller.responses.stream(model=MODEL, input="three", conversation=talk.id) as events:
        assert events.get_final_response().output_text == "echo: three"
    items = list(caller.conversations.items.list(talk.id, order="asc", limit=3))
    texts = [item.content[0].text for item in items]
    expected = ["before", "noted", "one", "echo: one", "two", "echo: two", "three", "echo: three"]
    assert texts == expected, texts
    added = caller.conversations.items.create(talk.id, items=[user("four")])
    (item,) = added.data
    assert caller.conversations.items.retrieve(item.id, conversation_id=talk.id) == item
    assert caller.conversations.items.delete(item.id, conversation_id=talk.id).id == talk.id
    raises(openai.NotFoundError,
           lambda: caller.conversations.items.retrieve(item.id, conversation_id=talk.id), item.id)
    updated = caller.conversations.update(talk.id, metadata={"topic": "none"})
    assert updated.metadata == {"topic": "none"}, updated
    raises(openai.BadRequestError,
           lambda: caller.responses.create(model=MODEL, input="x", conversation=talk.id,
                                           previous_response_id=first.id), "together")
    deleted = caller.conversations.delete(talk.id)
    assert deleted.deleted and deleted.object == "conversation.deleted", deleted
    raises(openai.NotFoundError, lambda: caller.conversations.retrieve(talk.id), talk.id)


@timed
def agent_sessions():
    """A session of OpenAI's Agents API with a function of the client."""
    api = client("terminal").beta.agents
    function = {"type": "function", "name": "add", "description": "Adds.",
                "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}
    agent = api.create(model="claude", name="adder", instructions="Be kind.", tools=[function])
    prompt = '[[say First.]] [[tool mcp__app__add {"a": 20}]] [[say Last.]]'
    stream = api.sessions.create(agent_id=agent.id, environment={"type": "openai_hosted"}, input=prompt, stream=True,
                                 stream_options={"include_obfuscation": False}, metadata={"suite": "openai"})
    names, session, texts_said = [], None, []
    for event in stream:
        names.append(event.type)
        if event.type == "agent.session.created":
            session = event.session.id
        if event.type == "agent.session.turn.item.done" and event.item.type == "message":
            texts_said.append(event.item.content[0].text)
        if event.type == "agent.session.requires_action":
            [action] = event.session.required_actions
            api.sessions.events.create(session, events=[{
                "type": "agent.session.input.tool_result", "call_id": action.call_id, "turn_id": action.turn_id,
                "success": True, "output": "42"}])
    assert (names[:2], names[-2:]) == (
        ["agent.session.created", "agent.session.turn.created"],
        ["agent.session.turn.completed", "agent.session.idle"]), names
    assert texts_said == ["First.", "Last."], texts_said
    items = [item.type for item in api.sessions.items.list(session, order="asc")]
    # The transcript of the terminal may have a text after the call of its message.
    expected = ["function_call", "function_call_output", "message", "message", "message"]
    assert items[0] == "message" and sorted(items) == expected, items
    [turn] = list(api.sessions.turns.list(session))
    assert turn.status == "completed" and turn.usage.output_tokens > 0, turn
    assert [one.id for one in api.sessions.list(metadata={"suite": "openai"})] == [session]
    assert api.sessions.update(session, metadata=None).metadata == {}
    # A repeated request creates no second session.
    again = {"agent_id": agent.id, "environment": {"type": "none"}, "extra_headers": {"Idempotency-Key": agent.id}}
    one, two = (api.sessions.create(**again).id for _ in range(2))
    assert one == two and api.sessions.delete(one).deleted, (one, two)
    # A repeated request starts no second turn, and several messages are one turn.
    user = [{"role": "user", "content": [{"type": "input_text", "text": text}]} for text in ("[[note kept]] [[say Once.]]", "more")]
    for _ in range(2):
        api.sessions.events.create(session, idempotency_key="once", events=[
            {"type": "agent.session.input.message", "input": user}])
    until = time.monotonic() + 60
    while [turn.status for turn in api.sessions.turns.list(session)] != ["completed", "completed"]:
        assert time.monotonic() < until, list(api.sessions.turns.list(session))
        time.sleep(0.1)
    artifacts = list(api.sessions.artifacts.list(session))
    assert REAL or "notes" in [one.path.rsplit("/")[-1] for one in artifacts], artifacts
    for artifact in artifacts:
        assert api.sessions.artifacts.retrieve(artifact.id, session_id=session).path == artifact.path
        content = api.sessions.artifacts.content(artifact.id, session_id=session).read()
        assert len(content) == artifact.size_bytes, artifact
    api.sessions.events.create(session, events=[{"type": "agent.session.input.message", "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "[[hang]]"}]}]}])
    api.sessions.events.create(session, events=[{"type": "agent.session.input.cancel"}])
    assert [turn.status for turn in api.sessions.turns.list(session)] == ["cancelled", "completed", "completed"]
    assert api.sessions.delete(session).deleted and api.delete(agent.id).deleted


def limits():
    """Limits of one live agent and six turns per minute."""
    caller = client("terminal")
    pieces = caller.chat.completions.create(**told([user("[[hang]]")], stream=True))
    assert next(iter(pieces)).choices[0].delta.role == "assistant"
    error = raises(openai.InternalServerError, lambda: create(caller, [user("x")]), "limit")
    assert (error.status_code, error.code) == (503, "overloaded"), error
    assert error.response.headers["retry-after"] == "1", error.response.headers
    pieces.close()
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
        history = history + [message, user("next")]
    error = raises(openai.RateLimitError, lambda: create(caller, history), "minute")
    assert error.code == "rate_limit_exceeded", error
    assert int(error.response.headers["retry-after"]) > 0, error.response.headers


@timed
def all_cases():
    # Starting the real agent is slow. Cases that start many agents run once per SDK, some with one
    # driver and some with the other, and each does only a part of them.
    own, other = (["stream"], ["terminal"]) if REAL else (DRIVERS, DRIVERS)
    kept = {kind: ten_turns(kind) for kind in DRIVERS}
    for kind in other:
        own_tools(kind)
        responses(kind)
        if not REAL:
            conversations(kind)
            pictures(kind)
    agent_sessions()
    restart()
    for kind in own:
        after_restart(kind, *kept[kind])
    restart(history="concat_message")
    for kind in other:
        with_words_before(kind)
    restart()
    refused_at_once("terminal")
    for kind in own:
        failed_turns(f"{kind}-broken")
        broken_off(f"{kind}-broken")


{"all": all_cases, "limits": limits}[TOLD["case"]]()
done()
