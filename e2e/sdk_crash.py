"""Both vendors' Python SDKs through every face while Hob is killed in the middle of a turn: see sdk_told.py.

Each case leaves a turn running. `kill -9` ends the server, another one starts, and each client goes on where it was.
"""

import contextlib
import time

import anthropic
import httpx2
import openai
from anthropic import Anthropic
from openai import OpenAI

from sdk_told import DRIVERS, HEADER, TOLD, app, ask, done, long_work, wait_for

BEFORE = "[[say {history}]]"
# A turn that says a word and never ends.
BEGUN = '[[say Begun.]] [[tool Bash {"command":"exec sleep 1000"}]]'


def from_anthropic(kind):
    return Anthropic(base_url=TOLD["url"], api_key=app(kind)["token"], max_retries=0)


def from_openai(kind):
    return OpenAI(base_url=f"{TOLD['url']}/v1", api_key=app(kind)["token"], max_retries=0)


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def running(kind):
    """A prompt whose turn never ends, and a function that waits until the turn's tool runs."""
    prompt, pid = long_work(kind)
    return prompt, lambda: int(wait_for(pid))


def breaks(events):
    """Reads a stream until its connection breaks, and returns its events."""
    seen = []
    with contextlib.suppress(httpx2.HTTPError, anthropic.APIConnectionError, openai.APIConnectionError):
        for event in events:
            seen.append(event)
        raise AssertionError(f"the stream ended in good order: {seen[-3:]}")
    return seen


def until(what, check):
    end = time.monotonic() + 60
    while not (found := check()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return found


def messages(kind):
    prompt, tool = running(kind)
    history = [user("one"), assistant("echo: one"), user(prompt)]
    stream = from_anthropic(kind).messages.create(model="sonnet", max_tokens=100, messages=history, stream=True)
    pid = tool()
    yield pid
    assert all(event.type != "message_stop" for event in breaks(stream))
    raw = from_anthropic(kind).messages.with_raw_response.create(
        model="sonnet", max_tokens=100, messages=history[:2] + [user(BEFORE)])
    text = raw.parse().content[0].text
    assert raw.headers[HEADER] == "seeded" and "echo: one" in text, (raw.headers, text)


def chat(kind):
    prompt, tool = running(kind)
    history = [user("one"), assistant("echo: one"), user(prompt)]
    stream = from_openai(kind).chat.completions.create(model="sonnet", messages=history, stream=True)
    pid = tool()
    yield pid
    assert all(chunk.choices[0].finish_reason is None for chunk in breaks(stream))
    raw = from_openai(kind).chat.completions.with_raw_response.create(
        model="sonnet", messages=history[:2] + [user(BEFORE)])
    text = raw.parse().choices[0].message.content
    assert raw.headers[HEADER] == "seeded" and "echo: one" in text, (raw.headers, text)


def responses(kind):
    caller = from_openai(kind)
    first = caller.responses.create(model="sonnet", input="one")
    prompt, tool = running(kind)
    stream = caller.responses.create(model="sonnet", input=prompt, previous_response_id=first.id, stream=True)
    cut = next(iter(stream)).response.id
    pid = tool()
    yield pid
    breaks(stream)
    caller = from_openai(kind)
    assert caller.responses.retrieve(first.id).output_text == "echo: one"
    # The cut turn has no answer, and says so.
    assert caller.responses.retrieve(cut).status == "failed", caller.responses.retrieve(cut)
    again = caller.responses.create(model="sonnet", input=BEFORE, previous_response_id=first.id)
    assert "echo: one" in again.output_text, again


def background(kind):
    prompt, tool = running(kind)
    response = from_openai(kind).responses.create(model="sonnet", input=prompt, background=True)
    pid = tool()
    yield pid
    caller = from_openai(kind)
    found = caller.responses.retrieve(response.id)
    assert found.status == "failed" and found.error.message, found
    assert caller.responses.create(model="sonnet", input="on").output_text == "echo: on"


def conversations(kind):
    caller = from_openai(kind)
    talk = caller.conversations.create(items=[user("before"), assistant("noted")])
    caller.responses.create(model="sonnet", input="one", conversation=talk.id)
    prompt, tool = running(kind)
    stream = caller.responses.create(model="sonnet", input=prompt, conversation=talk.id, stream=True)
    next(iter(stream))
    pid = tool()
    yield pid
    breaks(stream)
    caller = from_openai(kind)
    again = caller.responses.create(model="sonnet", input=BEFORE, conversation=talk.id)
    assert "echo: one" in again.output_text, again
    texts = [item.content[0].text for item in caller.conversations.items.list(talk.id, order="asc")]
    assert texts[:4] == ["before", "noted", "one", "echo: one"], texts


def anthropic_sessions(kind):
    api = from_anthropic(kind).beta
    environment = api.environments.create(name="here", config={"type": "cloud"})
    agent = api.agents.create(name="worker", model="claude", tools=[{"type": "agent_toolset_20260401"}])
    session = api.sessions.create(agent=agent.id, environment_id=environment.id)

    def send(text):
        content = [{"type": "text", "text": text}]
        message = {"type": "user.message", "content": content}
        return from_anthropic(kind).beta.sessions.events.send(session.id, events=[message])

    stream = api.sessions.events.stream(session.id)
    send(BEGUN)
    events = iter(stream)
    seen = []
    while not seen or seen[-1].type != "agent.message":
        seen.append(next(events))
    yield None
    seen += breaks(events)
    api = from_anthropic(kind).beta.sessions
    listed = list(api.events.list(session.id))
    known = [event.id for event in listed]
    assert [event.id for event in seen] == known[:len(seen)], (seen, known)
    # The session is idle again, and answers.
    with api.events.stream(session.id) as stream:
        send("[[say Yes.]]")
        answer = next(event for event in stream if event.type == "agent.message")
    assert answer.content[0].text == "Yes.", answer
    later = [event.id for event in api.events.list(session.id)]
    assert later[:len(known)] == known and len(set(later)) == len(later), (known, later)


def openai_sessions(kind):
    api = from_openai(kind).beta.agents
    agent = api.create(model="claude", name="worker")
    events = iter(api.sessions.create(
        agent_id=agent.id, environment={"type": "openai_hosted"}, input=BEGUN, stream=True))
    session = next(events).session.id
    while (event := next(events)).type != "agent.session.turn.item.done" or event.item.content[0].text != "Begun.":
        pass
    yield None
    breaks(events)
    api = from_openai(kind).beta.agents.sessions
    [turn] = list(api.turns.list(session))
    assert turn.status not in ("completed", "in_progress", "queued"), turn
    content = [{"type": "input_text", "text": "[[say Yes.]]"}]
    api.events.create(session, events=[
        {"type": "agent.session.input.message", "input": [{"role": "user", "content": content}]}])
    until("the turn completes", lambda: next(iter(api.turns.list(session))).status == "completed")
    texts = [item.content[0].text for item in api.items.list(session, order="asc") if item.type == "message"]
    assert texts[:2] == [BEGUN, "Begun."] and texts[-1] == "Yes.", texts


def batches(kind):
    """The work on a batch goes on when the app asks for it. What was answered is not asked again."""
    prompt, tool = running(kind)

    def request(name, text):
        return {"custom_id": name, "params": {"model": "sonnet", "max_tokens": 9, "messages": [user(text)]}}

    made = from_anthropic(kind).messages.batches.create(requests=[request("a", "one"), request("b", prompt)])
    pid = tool()
    yield pid
    api = from_anthropic(kind).messages.batches
    assert api.retrieve(made.id).processing_status == "in_progress"
    api.cancel(made.id)
    until("the batch ends", lambda: api.retrieve(made.id).processing_status == "ended")
    found = {one.custom_id: one.result.type for one in api.results(made.id)}
    assert set(found) == {"a", "b"} and found["b"] != "succeeded", found


def memory_stores(kind):
    api = from_anthropic(kind).beta.memory_stores
    store = api.create(name="notes")
    memory = api.memories.create(store.id, path="/a.md", content="The crane is green.")
    yield None
    api = from_anthropic(kind).beta.memory_stores
    assert api.memories.retrieve(memory.id, memory_store_id=store.id).content == "The crane is green."
    api.memories.update(memory.id, memory_store_id=store.id, content="The crane is red.")


FACES = [messages, chat, responses, background, conversations, anthropic_sessions, openai_sessions, batches,
         memory_stores]


def crash(kind):
    """Runs all faces up to the middle of their turns, kills the server, and runs them to their ends."""
    cases = [face(kind) for face in FACES]
    pids = [pid for pid in map(next, cases) if pid]
    TOLD["url"] = ask("crash")
    ask("gone", pids=pids)
    for face, case in zip(FACES, cases):
        start = time.monotonic()
        assert next(case, "ended") == "ended", face
        print(f"{face.__name__} {kind}: {time.monotonic() - start:.1f} s", flush=True)


for kind in DRIVERS:
    crash(kind)
done()
