"""Random turns through every face of Hob that streams: see sdk_told.py. `case` is the number of turns of each face.

Each event must be one that the SDK knows, with all fields of its type: the SDKs themselves accept any. Every second turn goes
through the SDK's own helper, where there is one: it puts the events together itself. An error must be the SDK's own exception.
"""

import collections
import os
import random

import anthropic
import openai
from anthropic import Anthropic
from anthropic.types import RawMessageStreamEvent
from anthropic.types.beta.sessions import BetaManagedAgentsStreamSessionEvents
from openai import OpenAI
from openai.types.beta import AgentSessionEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from sdk_told import TOLD, app, done

TURNS = int(TOLD["case"])
# The turns of a short run are always the same.
SEED = int(os.environ.get("HOB_SEED") or (random.randrange(1 << 32) if TURNS > 100 else 1))
CHANCE = random.Random(SEED)
# A conversation has this many turns, then another one begins.
CONVERSATION_TURNS = 12
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "string"}}}
WORDS = ["harbour", "crane", "naïve", "日本語", "эхо", "🦫", "<b>x</b>", "a\tb", "**bold**", "`code`", "\\n", '"quoted"', "{}", "data: x"]
SEEN = collections.Counter()


def words(most=12):
    return " ".join(CHANCE.choice(WORDS) for _ in range(CHANCE.randint(1, most)))


def tool_input():
    return CHANCE.choice(['{"a": 1, "b": "x"}', "{}", '{"b": "日本語 \\" 🦫"}', '{"a": -1.5e3}'])


def step(with_tools):
    kind = CHANCE.choice(["say", "say", "say", "think", "chunks", "bash", "pair", "sleep", "big"] + ["own", "owns"] * with_tools)
    return {
        "say": lambda: f"[[say {words()}]]",
        "think": lambda: f"[[think {words()}]]",
        "chunks": lambda: f"[[chunks {CHANCE.randint(1, 20)}]]",
        "bash": lambda: '[[tool Bash {"command":"echo %d"}]]' % CHANCE.randint(0, 9),
        "pair": lambda: '[[tool Bash {"command":"echo a"}]] [[also Bash {"command":"false"}]]',
        "sleep": lambda: f"[[sleep {CHANCE.randint(1, 20)}]]",
        "big": lambda: f"[[big {CHANCE.randint(1, 20000)}]]",
        "own": lambda: f"[[tool mcp__app__add {tool_input()}]]",
        "owns": lambda: f"[[tool mcp__app__add {tool_input()}]] [[also mcp__app__add {tool_input()}]]",
    }[kind]()


def prompt(with_tools=False):
    """A random turn; sometimes one that fails."""
    steps = [step(with_tools) for _ in range(CHANCE.randint(1, 5))]
    ending = CHANCE.choices(["", "[[stop max_tokens]]", "[[error 429 busy]]", "[[error 500 broken]]", "[[crash]]"], [20, 1, 1, 1, 1])[0]
    return " ".join([*steps, ending]).strip()


class Checked:
    """Checks the events of one face."""

    def __init__(self, face, kind):
        self.face, self.type = face, TypeAdapter(kind)

    def __call__(self, event):
        data = event.to_dict(mode="json")
        self.type.validate_python(data)
        SEEN[self.face, data.get("type", data.get("object"))] += 1
        return event


class Talk:
    """A conversation that the client keeps itself, with or without tools."""

    def __init__(self):
        self.history, self.with_tools = [], False

    def ask(self):
        """The messages of the next turn. A conversation that is long enough ends before it."""
        if len(self.history) > 2 * CONVERSATION_TURNS:
            self.history = []
        if not self.history:
            self.with_tools = CHANCE.random() < 0.5
        return [{"role": "user", "content": prompt(self.with_tools)}]


class Messages(Talk):
    """`/v1/messages`."""

    def __init__(self):
        super().__init__()
        self.client = Anthropic(base_url=TOLD["url"], api_key=app("stream")["token"], max_retries=0)
        self.check = Checked("messages", RawMessageStreamEvent)

    def turn(self, helper):
        asked = self.ask()
        tools = [{"name": "add", "description": "Adds.", "input_schema": SCHEMA}] if self.with_tools else []
        while asked:
            told = {"model": "sonnet", "max_tokens": 1024, "messages": [*self.history, *asked], "tools": tools}
            try:
                if helper:
                    with self.client.messages.stream(**told) as stream:
                        for _ in stream:
                            pass
                        message = stream.get_final_message()
                    content = [block.to_dict() for block in message.content]
                else:
                    content = self.raw(told)
            except anthropic.APIError:
                self.history = []
                raise
            self.history += [*asked, {"role": "assistant", "content": content or "…"}]
            calls = [block for block in content if block["type"] == "tool_use"]
            asked = [{"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call["id"], "content": words(), "is_error": CHANCE.random() < 0.2}
                for call in calls]}] if calls else []
            if asked and CHANCE.random() < 0.1:
                self.history = []  # A client that never returns its results.
                return

    def raw(self, told):
        blocks, open_block = [], None
        for event in map(self.check, self.client.messages.create(stream=True, **told)):
            if event.type == "content_block_start":
                assert open_block is None and event.index == len(blocks), event
                open_block = event.content_block.to_dict()
                parts = []
            elif event.type == "content_block_delta":
                assert event.index == len(blocks), event
                parts.append(event.delta.text if event.delta.type == "text_delta" else event.delta.partial_json)
            elif event.type == "content_block_stop":
                if open_block["type"] == "tool_use":
                    open_block["input"] = TypeAdapter(dict).validate_json("".join(parts) or "{}")
                else:
                    open_block["text"] = "".join(parts)
                blocks.append(open_block)
                open_block = None
        assert open_block is None and event.type == "message_stop", event
        return blocks


class Completions(Talk):
    """`/v1/chat/completions`."""

    def __init__(self):
        super().__init__()
        self.client = OpenAI(base_url=TOLD["url"] + "/v1", api_key=app("stream")["token"], max_retries=0)
        self.check = Checked("completions", ChatCompletionChunk)

    def turn(self, helper):
        asked = self.ask()
        more = {"tools": [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}]} if self.with_tools else {}
        while asked:
            told = {"model": "sonnet", "messages": [*self.history, *asked], "stream_options": {"include_usage": CHANCE.random() < 0.5}, **more}
            try:
                if helper:
                    with self.client.chat.completions.stream(**told) as stream:
                        for _ in stream:
                            pass
                        message = stream.get_final_completion().choices[0].message
                    text, calls = message.content, [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or []]
                else:
                    text, calls = self.raw(told)
            except openai.OpenAIError:
                # The helper raises a LengthFinishReasonError after max_tokens.
                self.history = []
                raise
            said = {"role": "assistant", "content": text or ""}
            if calls:
                said["tool_calls"] = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
            self.history += [*asked, said]
            asked = [{"role": "tool", "tool_call_id": call, "content": words()} for call, _, _ in calls]

    def raw(self, told):
        text, calls = "", {}
        for chunk in map(self.check, self.client.chat.completions.create(stream=True, **told)):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for call in choice.delta.tool_calls or []:
                    known = calls.setdefault(call.index, [call.id, call.function.name, ""])
                    known[2] += call.function.arguments or ""
        return text, [tuple(call) for call in calls.values()]


class Responses:
    """`/v1/responses`."""

    def __init__(self):
        self.client = OpenAI(base_url=TOLD["url"] + "/v1", api_key=app("stream")["token"], max_retries=0)
        self.check = Checked("responses", ResponseStreamEvent)
        self.turns, self.previous = 0, None

    def turn(self, helper):
        if self.turns % CONVERSATION_TURNS == 0:
            self.previous, self.with_tools = None, CHANCE.random() < 0.5
        self.turns += 1
        more = {"tools": [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}]} if self.with_tools else {}
        asked = prompt(self.with_tools)
        while asked:
            told = {"model": "sonnet", "input": asked, "previous_response_id": self.previous, **more}
            try:
                if helper:
                    with self.client.responses.stream(**told) as stream:
                        for _ in stream:
                            pass
                        response = stream.get_final_response()
                else:
                    response = self.raw(told)
            except (openai.OpenAIError, RuntimeError):
                # The helper raises a RuntimeError after a failed response.
                self.previous = None
                raise
            self.previous = response.id if response.status in ("completed", "incomplete") else None
            calls = [item for item in response.output if item.type == "function_call"]
            asked = [{"type": "function_call_output", "call_id": call.call_id, "output": words()} for call in calls]

    def raw(self, told):
        for number, event in enumerate(map(self.check, self.client.responses.create(stream=True, **told))):
            assert event.sequence_number == number, event
        assert event.type in ("response.completed", "response.incomplete", "response.failed"), event
        return event.response


class AnthropicSessions:
    """Sessions of Anthropic's Managed Agents."""

    def __init__(self):
        self.api = Anthropic(base_url=TOLD["url"], api_key=app("stream")["token"], max_retries=0).beta
        self.check = Checked("anthropic sessions", BetaManagedAgentsStreamSessionEvents)
        self.environment = self.api.environments.create(name="here", config={"type": "cloud"})
        tools = [{"type": "agent_toolset_20260401"}, {"type": "custom", "name": "add", "description": "Adds.", "input_schema": SCHEMA}]
        self.agent = self.api.agents.create(name="adder", model="claude", tools=tools)
        self.turns, self.session = 0, None

    def turn(self, helper):
        if self.turns % CONVERSATION_TURNS == 0:
            if old := self.session:
                self.session = None
                self.api.sessions.delete(old.id)
            self.session = self.api.sessions.create(agent=self.agent.id, environment_id=self.environment.id)
        self.turns += 1
        send = lambda event: self.api.sessions.events.send(self.session.id, events=[event])
        with self.api.sessions.events.stream(self.session.id) as stream:
            send({"type": "user.message", "content": [{"type": "text", "text": prompt(True)}]})
            for event in map(self.check, stream):
                if event.type in ("session.status_terminated", "session.deleted"):
                    self.turns = 0
                    break
                if event.type != "session.status_idle":
                    continue
                if event.stop_reason.type != "requires_action":
                    break
                for call in event.stop_reason.event_ids:
                    send({"type": "user.custom_tool_result", "custom_tool_use_id": call, "content": [{"type": "text", "text": words()}]})
        if self.turns % CONVERSATION_TURNS == 0:
            for event in self.api.sessions.events.list(self.session.id):
                self.check(event)


class OpenAiSessions:
    """Sessions of OpenAI's Agents API."""

    def __init__(self):
        self.api = OpenAI(base_url=TOLD["url"] + "/v1", api_key=app("stream")["token"], max_retries=0).beta.agents
        self.check = Checked("openai sessions", AgentSessionEvent)
        function = {"type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA}
        self.agent = self.api.create(model="claude", name="adder", tools=[function])
        self.turns, self.session = 0, None

    def turn(self, helper):
        if self.turns % CONVERSATION_TURNS == 0:
            if old := self.session:
                self.session = None
                self.api.sessions.delete(old.id)
            self.session = self.api.sessions.create(agent_id=self.agent.id, environment={"type": "openai_hosted"})
        self.turns += 1
        if helper:
            handlers = {"add": lambda arguments: words()}
            with self.api.sessions.stream(self.session.id, input=prompt(True), tool_handlers=handlers) as stream:
                for event in stream:
                    self.check(event)
            return
        create = lambda event: self.api.sessions.events.create(self.session.id, events=[event])
        with self.api.sessions.events.stream(self.session.id) as stream:
            content = [{"type": "input_text", "text": prompt(True)}]
            create({"type": "agent.session.input.message", "input": [{"role": "user", "content": content}]})
            for event in map(self.check, stream):
                if event.type == "agent.session.requires_action":
                    for action in event.session.required_actions:
                        create({"type": "agent.session.input.tool_result", "call_id": action.call_id, "turn_id": action.turn_id,
                                "success": CHANCE.random() < 0.8, "output": words()})
                elif event.type in ("agent.session.idle", "agent.session.failed"):
                    break


print(f"seed {SEED}", flush=True)
for face in (Messages(), Completions(), Responses(), AnthropicSessions(), OpenAiSessions()):
    failed = collections.Counter()
    for number in range(TURNS):
        try:
            face.turn(helper=number % 2 == 1)
        except (anthropic.APIError, openai.OpenAIError, RuntimeError) as error:
            failed[type(error).__name__] += 1
    name = type(face).__doc__
    print(f"{name} {TURNS} turns; raised: {dict(failed)}", flush=True)
    # A turn in eight fails on purpose.
    assert sum(failed.values()) <= TURNS // 2, (name, failed)
for (face, kind), count in sorted(SEEN.items()):
    print(f"{face:20} {kind:45} {count}", flush=True)
done()
