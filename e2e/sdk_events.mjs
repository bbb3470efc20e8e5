// Random turns through every face of Hob that streams, with the TypeScript SDKs: see sdk_told.mjs. sdk_events.py is its
// counterpart. `case` is the number of turns of each face.
//
// The SDKs parse each event. Every second turn goes through the SDK's own helper, where there is one: it puts the events
// together itself. An error must be the SDK's own. At the end TypeScript's compiler checks that each kind of event is one of the
// SDK's types: the SDKs themselves accept any.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import Anthropic, { AnthropicError } from "@anthropic-ai/sdk";
import OpenAI, { OpenAIError } from "openai";

import { app, told } from "./sdk_told.mjs";

const TURNS = Number(told.case);
// The turns of a short run are always the same.
const SEED = Number(process.env.HOB_SEED || (TURNS > 100 ? Math.floor(Math.random() * 2 ** 32) : 1));
// A conversation has this many turns, then another one begins.
const CONVERSATION_TURNS = 12;
const SCHEMA = { type: "object", properties: { a: { type: "number" }, b: { type: "string" } } };
const WORDS = ["harbour", "crane", "naïve", "日本語", "эхо", "🦫", "<b>x</b>", "a\tb", "**bold**", "`code`", "\\n", '"quoted"', "{}", "data: x"];
const INPUTS = ['{"a": 1, "b": "x"}', "{}", '{"b": "日本語 \\" 🦫"}', '{"a": -1.5e3}'];
/** The most kinds of events of a face that the compiler gets. */
const MAX_KINDS = 3000;

/** Mulberry32: a number from 0 to 1, the same ones for each seed. */
let state = SEED >>> 0;
function chance() {
  state = (state + 0x6d2b79f5) >>> 0;
  let mixed = Math.imul(state ^ (state >>> 15), state | 1);
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
}
const between = (least, most) => least + Math.floor(chance() * (most - least + 1));
const pick = (list) => list[between(0, list.length - 1)];
const words = (most = 12) => Array.from({ length: between(1, most) }, () => pick(WORDS)).join(" ");

function step(withTools) {
  const kinds = ["say", "say", "say", "think", "chunks", "bash", "pair", "sleep", "big"];
  if (withTools) kinds.push("own", "owns");
  const steps = {
    say: () => `[[say ${words()}]]`,
    think: () => `[[think ${words()}]]`,
    chunks: () => `[[chunks ${between(1, 20)}]]`,
    bash: () => `[[tool Bash {"command":"echo ${between(0, 9)}"}]]`,
    pair: () => '[[tool Bash {"command":"echo a"}]] [[also Bash {"command":"false"}]]',
    sleep: () => `[[sleep ${between(1, 20)}]]`,
    big: () => `[[big ${between(1, 20000)}]]`,
    own: () => `[[tool mcp__app__add ${pick(INPUTS)}]]`,
    owns: () => `[[tool mcp__app__add ${pick(INPUTS)}]] [[also mcp__app__add ${pick(INPUTS)}]]`,
  };
  return steps[pick(kinds)]();
}

/** A random turn; sometimes one that fails. */
function prompt(withTools = false) {
  const steps = Array.from({ length: between(1, 5) }, () => step(withTools));
  const endings = ["[[stop max_tokens]]", "[[error 429 busy]]", "[[error 500 broken]]", "[[crash]]"];
  const ending = chance() < 20 / 24 ? "" : pick(endings);
  return [...steps, ending].join(" ").trim();
}

/** Fields whose values are free texts, so that they make no kind of an event. */
const FREE = /(^|_)(ids?|at|key|token|signature|obfuscation|text|thinking|delta|content|arguments|partial_json|output|input|name|message|title|command|description|instructions|cwd|path|fingerprint|model)$/;

/** Returns an event with its free texts and its numbers replaced, so that few different ones are left. */
function shape(value, field = "") {
  if (Array.isArray(value)) {
    const items = new Map(value.map((item) => [JSON.stringify(shape(item, field)), shape(item, field)]));
    return [...items.values()];
  }
  if (value !== null && typeof value === "object") {
    // An object of the client's own, such as a schema or the arguments of a call.
    if (["parameters", "input_schema", "metadata"].includes(field)) return {};
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, shape(inner, name)]));
  }
  if (typeof value === "string") return FREE.test(field) ? "x" : value;
  return typeof value === "number" ? 1 : value;
}

/** The events of one face, by their type in the SDK. */
class Seen {
  constructor(face, module, type) {
    Object.assign(this, { face, module, type, kinds: new Map(), counts: new Map() });
    Seen.all.push(this);
  }

  static all = [];

  note(event) {
    const name = event.type ?? event.object;
    this.counts.set(name, (this.counts.get(name) ?? 0) + 1);
    const kind = JSON.stringify(shape(event));
    if (!this.kinds.has(kind)) this.kinds.set(kind, JSON.stringify(event));
    assert.ok(this.kinds.size <= MAX_KINDS, `${this.face}: too many kinds of events, the last is ${kind}`);
    return event;
  }
}

/** A conversation that the client keeps itself, with or without tools. */
class Talk {
  history = [];
  withTools = false;

  /** The messages of the next turn. A conversation that is long enough ends before it. */
  ask() {
    if (this.history.length > 2 * CONVERSATION_TURNS) this.history = [];
    if (!this.history.length) this.withTools = chance() < 0.5;
    return [{ role: "user", content: prompt(this.withTools) }];
  }
}

class Messages extends Talk {
  name = "/v1/messages";
  client = new Anthropic({ baseURL: told.url, apiKey: app("stream").token, maxRetries: 0 });
  seen = new Seen("messages", "@anthropic-ai/sdk/resources/messages", "RawMessageStreamEvent");

  async turn(helper) {
    let asked = this.ask();
    const tools = this.withTools ? [{ name: "add", description: "Adds.", input_schema: SCHEMA }] : [];
    while (asked.length) {
      const body = { model: "sonnet", max_tokens: 1024, messages: [...this.history, ...asked], tools };
      let content;
      try {
        content = helper ? (await this.client.messages.stream(body).finalMessage()).content : await this.raw(body);
      } catch (error) {
        this.history = [];
        throw error;
      }
      this.history.push(...asked, { role: "assistant", content: content.length ? content : "…" });
      const calls = content.filter((block) => block.type === "tool_use");
      const result = (call) => ({ type: "tool_result", tool_use_id: call.id, content: words(), is_error: chance() < 0.2 });
      asked = calls.length ? [{ role: "user", content: calls.map(result) }] : [];
      if (asked.length && chance() < 0.1) {
        this.history = []; // A client that never returns its results.
        return;
      }
    }
  }

  async raw(body) {
    const blocks = [];
    let [open, parts, last] = [null, [], null];
    for await (const event of await this.client.messages.create({ stream: true, ...body })) {
      last = this.seen.note(event);
      if (event.type === "content_block_start") {
        assert.ok(open === null && event.index === blocks.length, JSON.stringify(event));
        [open, parts] = [{ ...event.content_block }, []];
      } else if (event.type === "content_block_delta") {
        assert.equal(event.index, blocks.length);
        parts.push(event.delta.type === "text_delta" ? event.delta.text : event.delta.partial_json);
      } else if (event.type === "content_block_stop") {
        if (open.type === "tool_use") open.input = JSON.parse(parts.join("") || "{}");
        else open.text = parts.join("");
        blocks.push(open);
        open = null;
      }
    }
    assert.ok(open === null && last.type === "message_stop", JSON.stringify(last));
    return blocks;
  }
}

const openai = () => new OpenAI({ baseURL: `${told.url}/v1`, apiKey: app("stream").token, maxRetries: 0 });

class Completions extends Talk {
  name = "/v1/chat/completions";
  client = openai();
  seen = new Seen("completions", "openai/resources/chat/completions", "ChatCompletionChunk");

  async turn(helper) {
    let asked = this.ask();
    const tool = { type: "function", function: { name: "add", parameters: SCHEMA } };
    while (asked.length) {
      const body = {
        model: "sonnet",
        messages: [...this.history, ...asked],
        stream_options: { include_usage: chance() < 0.5 },
        ...(this.withTools ? { tools: [tool] } : {}),
      };
      let [text, calls] = ["", []];
      try {
        if (helper) {
          const message = (await this.client.chat.completions.stream(body).finalChatCompletion()).choices[0].message;
          [text, calls] = [message.content, message.tool_calls ?? []];
        } else {
          [text, calls] = await this.raw(body);
        }
      } catch (error) {
        // The helper throws a LengthFinishReasonError after max_tokens.
        this.history = [];
        throw error;
      }
      const plain = calls.map((call) => ({ id: call.id, type: "function", function: { name: call.function.name, arguments: call.function.arguments } }));
      this.history.push(...asked, { role: "assistant", content: text ?? "", ...(plain.length ? { tool_calls: plain } : {}) });
      asked = plain.map((call) => ({ role: "tool", tool_call_id: call.id, content: words() }));
    }
  }

  async raw(body) {
    let text = "";
    const calls = [];
    for await (const chunk of await this.client.chat.completions.create({ stream: true, ...body })) {
      this.seen.note(chunk);
      for (const { delta } of chunk.choices) {
        text += delta.content ?? "";
        for (const call of delta.tool_calls ?? []) {
          calls[call.index] ??= { id: call.id, function: { name: call.function.name, arguments: "" } };
          calls[call.index].function.arguments += call.function.arguments ?? "";
        }
      }
    }
    return [text, calls];
  }
}

class Responses {
  name = "/v1/responses";
  client = openai();
  seen = new Seen("responses", "openai/resources/responses/responses", "ResponseStreamEvent");
  turns = 0;
  previous = null;

  async turn(helper) {
    if (this.turns % CONVERSATION_TURNS === 0) [this.previous, this.withTools] = [null, chance() < 0.5];
    this.turns += 1;
    const tool = { type: "function", name: "add", parameters: SCHEMA, strict: false };
    let asked = prompt(this.withTools);
    while (asked.length) {
      const body = { model: "sonnet", input: asked, previous_response_id: this.previous, ...(this.withTools ? { tools: [tool] } : {}) };
      let response;
      try {
        response = helper ? await this.client.responses.stream(body).finalResponse() : await this.raw(body);
      } catch (error) {
        this.previous = null;
        throw error;
      }
      this.previous = ["completed", "incomplete"].includes(response.status) ? response.id : null;
      const calls = response.output.filter((item) => item.type === "function_call");
      asked = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: words() }));
    }
  }

  async raw(body) {
    let [number, last] = [0, null];
    for await (const event of await this.client.responses.create({ stream: true, ...body })) {
      last = this.seen.note(event);
      assert.equal(event.sequence_number, number, JSON.stringify(event));
      number += 1;
    }
    assert.match(last.type, /^response\.(completed|incomplete|failed)$/);
    return last.response;
  }
}

class AnthropicSessions {
  name = "Anthropic's Managed Agents";
  api = new Anthropic({ baseURL: told.url, apiKey: app("stream").token, maxRetries: 0 }).beta;
  seen = new Seen("anthropic sessions", "@anthropic-ai/sdk/resources/beta/sessions/events", "BetaManagedAgentsStreamSessionEvents");
  turns = 0;
  session = null;

  async begin() {
    this.environment = await this.api.environments.create({ name: "here", config: { type: "cloud" } });
    const own = { type: "custom", name: "add", description: "Adds.", input_schema: SCHEMA };
    this.agent = await this.api.agents.create({ name: "adder", model: "claude", tools: [{ type: "agent_toolset_20260401" }, own] });
  }

  async turn() {
    if (this.turns % CONVERSATION_TURNS === 0) {
      const old = this.session;
      this.session = null;
      if (old) await this.api.sessions.delete(old.id);
      this.session = await this.api.sessions.create({ agent: this.agent.id, environment_id: this.environment.id });
    }
    this.turns += 1;
    const send = (event) => this.api.sessions.events.send(this.session.id, { events: [event] });
    const stream = await this.api.sessions.events.stream(this.session.id);
    await send({ type: "user.message", content: [{ type: "text", text: prompt(true) }] });
    for await (const event of stream) {
      this.seen.note(event);
      if (["session.status_terminated", "session.deleted"].includes(event.type)) {
        this.turns = 0;
        break;
      }
      if (event.type !== "session.status_idle") continue;
      if (event.stop_reason.type !== "requires_action") break;
      for (const call of event.stop_reason.event_ids) {
        await send({ type: "user.custom_tool_result", custom_tool_use_id: call, content: [{ type: "text", text: words() }] });
      }
    }
    if (this.turns % CONVERSATION_TURNS === 0) {
      for await (const event of this.api.sessions.events.list(this.session.id)) this.seen.note(event);
    }
  }
}

class OpenAiSessions {
  name = "OpenAI's Agents API";
  api = openai().beta.agents;
  seen = new Seen("openai sessions", "openai/resources/beta/agents/agents", "AgentSessionEvent");
  turns = 0;
  session = null;

  async begin() {
    const own = { type: "function", name: "add", description: "Adds.", parameters: SCHEMA };
    this.agent = await this.api.create({ model: "claude", name: "adder", tools: [own] });
  }

  get place() {
    return { agent_id: this.agent.id, environment: { type: "openai_hosted" } };
  }

  async turn(helper) {
    if (helper) {
      // The helper's turn is the first of a session.
      const toolHandlers = { add: async () => words() };
      const stream = await this.api.sessions.create({ ...this.place, input: prompt(true), stream: true, toolHandlers });
      let session = null;
      try {
        for await (const event of stream) {
          this.seen.note(event);
          session ??= event.session?.id;
        }
      } finally {
        if (session) await this.api.sessions.delete(session);
      }
      return;
    }
    if (this.turns % CONVERSATION_TURNS === 0) {
      const old = this.session;
      this.session = null;
      if (old) await this.api.sessions.delete(old.id);
      this.session = await this.api.sessions.create(this.place);
    }
    this.turns += 1;
    const create = (event) => this.api.sessions.events.create(this.session.id, { events: [event] });
    const stream = await this.api.sessions.events.stream(this.session.id);
    const content = [{ type: "input_text", text: prompt(true) }];
    await create({ type: "agent.session.input.message", input: [{ role: "user", content }] });
    for await (const event of stream) {
      this.seen.note(event);
      if (event.type === "agent.session.requires_action") {
        for (const { call_id, turn_id } of event.session.required_actions) {
          await create({ type: "agent.session.input.tool_result", call_id, turn_id, success: chance() < 0.8, output: words() });
        }
      } else if (["agent.session.idle", "agent.session.failed"].includes(event.type)) {
        break;
      }
    }
  }
}

/** A type as it is on the wire: the vendors, too, leave out fields that may be null, and send null for optional ones. The SDK
 * adds `output_text` itself. */
const LOOSE = `type Free<T, K extends keyof T> = K extends "output_text" ? true : {} extends Pick<T, K> ? true : null extends T[K] ? true : false;
type Loose<T> = T extends string | number | boolean | null | undefined ? T
  : T extends (infer I)[] ? Loose<I>[]
  : T extends object ? { [K in keyof T as Free<T, K> extends true ? never : K]: Loose<T[K]> }
    & { [K in keyof T as Free<T, K> extends true ? K : never]?: Loose<T[K]> | null }
  : T;`;

/** Checks all kinds of events against the SDKs' types with the compiler. */
function checkTypes() {
  const folder = mkdtempSync(join(tmpdir(), "hob-events-"));
  try {
    symlinkSync(join(import.meta.dirname, "node_modules"), join(folder, "node_modules"));
    const names = Seen.all.map(({ kinds, module, type }, number) => {
      const lines = [`import type { ${type} } from "${module}";`, LOOSE, `declare function check<T extends Loose<${type}>>(event: T): void;`];
      lines.push(...[...kinds.values()].map((event) => `check(${event});`));
      // The check is one only if it finds an unknown event.
      lines.push("// @ts-expect-error", 'check({ type: "from_the_future", object: "from_the_future" });');
      writeFileSync(join(folder, `face${number}.ts`), lines.join("\n"));
      return `face${number}.ts`;
    });
    const tsc = join(import.meta.dirname, "../console/node_modules/.bin/tsc");
    const options = ["--noEmit", "--strict", "--skipLibCheck", "--target", "esnext", "--module", "nodenext", "--types", "", "--pretty", "false"];
    const checked = spawnSync(tsc, [...options, ...names], { cwd: folder, encoding: "utf8", maxBuffer: 1 << 26 });
    assert.equal(checked.status, 0, `${checked.error ?? ""}${checked.stdout?.slice(0, 8000)}${checked.stderr}`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

console.log(`seed ${SEED}`);
for (const face of [new Messages(), new Completions(), new Responses(), new AnthropicSessions(), new OpenAiSessions()]) {
  await face.begin?.();
  const failed = {};
  for (let number = 0; number < TURNS; number += 1) {
    try {
      await face.turn(number % 2 === 1);
    } catch (error) {
      if (!(error instanceof AnthropicError || error instanceof OpenAIError)) throw error;
      failed[error.constructor.name] = (failed[error.constructor.name] ?? 0) + 1;
    }
  }
  console.log(`${face.name}: ${TURNS} turns; thrown: ${JSON.stringify(failed)}`);
  // A turn in eight fails on purpose.
  const count = Object.values(failed).reduce((sum, one) => sum + one, 0);
  assert.ok(count <= Math.floor(TURNS / 2), `${face.name}: ${JSON.stringify(failed)}`);
}
for (const { face, counts, kinds } of Seen.all) {
  for (const [kind, count] of [...counts].sort()) console.log(`${face.padEnd(20)} ${kind.padEnd(45)} ${count}`);
  console.log(`${face}: ${kinds.size} kinds of events for the compiler`);
}
checkTypes();
console.log(JSON.stringify({ ok: true }));
process.exit(0);
