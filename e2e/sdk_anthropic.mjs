// Anthropic's own TypeScript SDK against Hob: see sdk_told.mjs. sdk_anthropic.py does the same.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import Anthropic from "@anthropic-ai/sdk";

import {
  CALLS, HEADER, PAIR, SYSTEM, agents, app, ask, inFolder, longWork, main, nothingLeft, onlyAgent, pathIn, png,
  raises, real, said, told, waitFor, work, systemPrompt,
} from "./sdk_told.mjs";

const MODEL = "sonnet";

const client = (kind, more = {}) =>
  new Anthropic({ baseURL: told.url, apiKey: app(kind).token, maxRetries: 0, ...more });
const body = (messages, more = {}) => ({ model: MODEL, max_tokens: 1024, messages, ...more });
const user = (content) => ({ role: "user", content });
const assistant = (content) => ({ role: "assistant", content });

function texts(message) {
  assert.ok(message.content.every((block) => block.type === "text"), JSON.stringify(message));
  return message.content.map((block) => block.text);
}

/** One turn: whether its process was warm, seeded or fresh, and the message. */
async function create(caller, messages, more = {}) {
  const { data, response } = await caller.messages.create(body(messages, more)).withResponse();
  assert.deepEqual([data.type, data.role, data.stop_reason], ["message", "assistant", "end_turn"]);
  assert.ok(data.id.startsWith("msg_") && data._request_id.startsWith("req_"), JSON.stringify(data));
  assert.ok(data.usage.input_tokens > 0 && data.usage.output_tokens > 0, JSON.stringify(data));
  return [response.headers.get(HEADER), data];
}

/** One turn as raw events: whether its process was warm, seeded or fresh, and its texts. */
async function rawStream(caller, messages, kind, more = {}) {
  const { data, response } = await caller.messages
    .create(body(messages, { stream: true, ...more }))
    .withResponse();
  const events = [];
  for await (const event of data) events.push(event);
  const names = events.map((event) => event.type);
  assert.equal(names[0], "message_start");
  assert.deepEqual(names.slice(-2), ["message_delta", "message_stop"]);
  const found = [];
  for (const event of events) {
    if (event.type === "content_block_start") assert.equal(found.push(""), event.index + 1);
    if (event.type === "content_block_delta") found[event.index] += event.delta.text;
  }
  const deltas = names.filter((name) => name === "content_block_delta").length;
  if (kind === "terminal") assert.equal(deltas, found.length);
  else assert.ok(deltas > found.length, `${deltas}`);
  const last = events.at(-2);
  assert.ok(last.delta.stop_reason === "end_turn" && last.usage.output_tokens > 0, JSON.stringify(last));
  return [response.headers.get(HEADER), found];
}

/** One process, and every shape in which a client may send the answers back. */
async function tenTurns(kind) {
  const caller = client(kind);
  const [history, origins, words] = [[], [], []];
  const turn = async (prompt, expected, echo) => {
    history.push(user(prompt));
    const [origin, message] = await create(caller, history, { system: SYSTEM });
    assert.deepEqual(texts(message), expected);
    origins.push(origin);
    words.push([prompt, expected]);
    history.push(assistant(echo(message)));
  };

  await turn("one", ["echo: one"], (message) => message.content[0].text);
  const agent = await onlyAgent(kind);
  await turn("two", ["echo: two"], (message) => [{ type: "text", text: message.content[0].text }]);
  const both = ["Looking.", "Found it."];
  await turn(work(`${kind}-0`), both, (message) => message.content);
  await turn(work(`${kind}-1`), both, (message) => message.content.at(-1).text);
  await turn(work(`${kind}-2`), both, (message) => texts(message).join("\n\n"));
  await turn(PAIR, ["Both."], (message) => structuredClone(message.content));
  await turn("[[think Hm.]] [[say Thought.]]", ["Thought."], (message) => message.content);
  for (const number of [0, 1, 2]) await waitFor(inFolder(kind, `${kind}-${number}`));

  // The helper of the SDK.
  history.push(user("[[big 3000]]"));
  const helper = caller.messages.stream(body(history, { system: SYSTEM }));
  const pieces = [];
  helper.on("text", (piece) => pieces.push(piece));
  const { response } = await helper.withResponse();
  const message = await helper.finalMessage();
  origins.push(response.headers.get(HEADER));
  assert.equal(pieces.join(""), await helper.finalText());
  assert.equal(texts(message)[0].length, 3000);
  assert.ok(kind === "terminal" ? pieces.length === 1 : pieces.length > 1, `${pieces.length}`);
  assert.equal(message.stop_reason, "end_turn");
  assert.ok(message.usage.input_tokens > 0 && message.usage.output_tokens > 0);
  history.push(assistant(message.content));
  words.push(["[[big 3000]]", texts(message)]);

  // The raw events, over a tool cycle.
  const prompt = '[[big 2000]] [[tool Bash {"command":"true"}]] [[big 1500]]';
  history.push(user([{ type: "text", text: prompt, cache_control: { type: "ephemeral" } }]));
  const [origin, found] = await rawStream(caller, history, kind, { system: SYSTEM });
  assert.deepEqual(found.map((text) => text.length), [2000, 1500]);
  origins.push(origin);
  words.push([prompt, found]);
  history.push(assistant(found.map((text) => ({ type: "text", text }))));

  await turn("ten", ["echo: ten"], (message) => message.content);
  assert.deepEqual(origins, ["fresh", ...Array(9).fill("warm")]);
  assert.equal((await onlyAgent(kind)).pid, agent.pid);
  assert.ok(agent.command.includes(`--model=${MODEL}`) && !agent.command.includes(SYSTEM), agent.command);
  assert.ok(systemPrompt(agent.command).includes(SYSTEM), agent.command);
  if (real) {
    const request = await ask("request", { holding: "ten" });
    assert.ok(request.system.includes(SYSTEM) && request.model.includes(MODEL), request.model);
  }
  return [history, words];
}

async function afterRestart(kind, history, words) {
  const caller = client(kind);
  history.push(user("[[say Before: {history}]] eleven"));
  const [origin, message] = await create(caller, history, { system: SYSTEM });
  assert.equal(origin, "seeded");
  if (real) {
    const expected = words.flatMap(([prompt, answers], index) => {
      // What the client left out is no longer part of the conversation.
      const echoed = { 3: answers.slice(-1), 4: [answers.join("\n\n")] }[index] ?? answers;
      return [["user", prompt], ...echoed.map((answer) => ["assistant", answer])];
    });
    assert.deepEqual(await said("eleven"), [...expected, ["user", history.at(-1).content]]);
  } else {
    for (const word of ["one", "echo: two", "Found it.", "Thought.", "of a long answer", "echo: ten"])
      assert.ok(texts(message)[0].includes(word), word);
  }
  history.push(assistant(message.content), user("twelve"));
  assert.equal((await create(caller, history, { system: SYSTEM }))[0], "warm");
}

/** The history goes before the first prompt. */
async function withWordsBefore(kind) {
  const history = [user("alpha"), assistant("beta"), user([{ type: "text", text: "gamma" }])];
  const [seeded, first] = await create(client(kind), history);
  assert.equal(seeded, "seeded");
  for (const word of ["Previous conversation context:", "[User]: alpha", "[Assistant]: beta", "gamma"])
    assert.ok(texts(first)[0].includes(word), texts(first)[0]);
  history.push(assistant(first.content), user("delta"));
  const [origin, message] = await create(client(kind), history);
  assert.deepEqual([origin, texts(message)], ["warm", ["echo: delta"]]);
}

async function refusedAtOnce(kind) {
  const caller = client(kind);
  const stranger = new Anthropic({ baseURL: told.url, apiKey: "hob_wrong", maxRetries: 0 });
  const unknown = await raises(Anthropic.AuthenticationError, () => create(stranger, [user("x")]), "token");
  assert.equal(unknown.type, "authentication_error");
  await raises(Anthropic.AuthenticationError, () => stranger.models.list());
  const bad = (words, messages, more) =>
    raises(Anthropic.BadRequestError, () => create(caller, messages, more), ...words);
  const empty = await bad(["messages"], []);
  assert.ok(empty.type === "invalid_request_error" && empty.requestID.startsWith("req_"));
  await bad(["last message"], [user("x"), assistant("y")]);
  await bad(["tools[0].type"], [user("x")], { tools: [{ type: "web_search_20250305", name: "web_search" }] });
  await bad(["system"], [user("x")], { system: [{ type: "image" }] });
  await bad(["base64"], [user([{ type: "image", source: { type: "url", url: "https://example.com/x.png" } }])]);
  // A token in the other header.
  const bearer = new Anthropic({ baseURL: told.url, authToken: app(kind).token, apiKey: null, maxRetries: 0 });
  const found = [];
  for await (const model of bearer.models.list()) found.push(model.id);
  assert.deepEqual(found.slice(0, 2), ["claude", "opus"]);
  assert.equal((await bearer.models.retrieve("sonnet")).type, "model");
  await raises(Anthropic.NotFoundError, () => bearer.models.retrieve("nosuch"));
}

/** The model's own errors. Each ends its process, and the next call works. */
async function failedTurns(kind) {
  const caller = client(kind);
  const all = [
    [429, Anthropic.RateLimitError], [529, Anthropic.InternalServerError],
    [404, Anthropic.NotFoundError], [400, Anthropic.BadRequestError],
    [500, Anthropic.InternalServerError],
  ];
  for (const [status, expected] of all) {
    // One is enough for the real agent: each ends a process that starts slowly.
    if (real && status !== 404) continue;
    if (real && status === 404) {
      const call = () => create(caller, [user("x")], { model: "nonexist-1" });
      await raises(expected, call, "nonexist-1");
      continue;
    }
    const call = () => create(caller, [user(`[[error ${status} it is so]]`)]);
    if (status === 529) {
      const error = await call().then(assert.fail, (error) => error);
      assert.ok(error instanceof expected && error.constructor.name === "OverloadedError", error.stack);
    } else {
      assert.equal((await raises(expected, call, "it is so")).status, status);
    }
  }
  if (!real) {
    await raises(Anthropic.InternalServerError, () => create(caller, [user("[[crash]]")]), "claude");
  }
  if (real) return nothingLeft(kind);
  // Once a stream has begun, an error is an event in it.
  const helper = caller.messages.stream(body([user("[[error 529 it is so]]")]));
  const error = await helper.done().then(assert.fail, (error) => error);
  assert.ok(error instanceof Anthropic.APIError && error.type === "overloaded_error", error.stack);
  await nothingLeft(kind);
}

/** A closed stream, a timeout and an abort: nothing is left, and the next call works. */
async function brokenOff(kind) {
  const caller = client(kind);
  {
    const [prompt, pid] = longWork(kind);
    const stream = await caller.messages.create(body([user(prompt)], { stream: true }));
    for await (const event of stream) {
      assert.equal(event.type, "message_start");
      const tool = Number(await waitFor(pid));
      const pids = [...(await agents(kind)).map((agent) => agent.pid), tool];
      assert.equal(pids.length, 2);
      stream.controller.abort();
      await ask("gone", { pids });
      break;
    }
    await nothingLeft(kind);
  }
  if (!real) {
    const [prompt, pid] = longWork(kind);
    const helper = caller.messages.stream(body([user(prompt)]));
    const tool = Number(await waitFor(pid));
    helper.abort();
    await raises(Anthropic.APIUserAbortError, () => helper.done());
    await ask("gone", { pids: [tool] });
  }
  const slow = () => caller.messages.create(body([user("[[say x]] [[hang]]")]), { timeout: real ? 4000 : 1000 });
  await raises(Anthropic.APIConnectionTimeoutError, slow);
  await nothingLeft(kind);
  if (!real) {
    const [prompt, pid] = longWork(kind);
    const abort = new AbortController();
    const asked = caller.messages.create(body([user(prompt)]), { signal: abort.signal });
    const failed = raises(Anthropic.APIUserAbortError, () => asked);
    const tool = Number(await waitFor(pid));
    abort.abort();
    await failed;
    await ask("gone", { pids: [tool] });
    await nothingLeft(kind);
  }
  const system = [{ type: "text", text: "First words." }, { type: "text", text: "Second words." }];
  const [origin, message] = await create(caller, [user("and now")], {
    system, stop_sequences: ["x"], metadata: { user_id: "u" }, temperature: 0.5, top_k: 3,
  });
  assert.deepEqual([origin, texts(message)], ["fresh", ["echo: and now"]]);
  const { command } = await onlyAgent(kind);
  assert.ok(systemPrompt(command).includes("First words.\n\nSecond words."), command);
  if (real) {
    const request = await ask("request", { holding: "and now" });
    assert.ok(request.system.includes("First words.") && request.system.includes("Second words."));
  }
}

async function pictures(kind) {
  const caller = client(kind);
  const data = png();
  const source = { type: "base64", media_type: "image/png", data: data.toString("base64") };
  const history = [user([{ type: "image", source }, { type: "text", text: "what is it?" }])];
  const [, first] = await create(caller, history);
  const path = pathIn(texts(first)[0]);
  assert.ok(readFileSync(path).equals(data) && texts(first)[0].includes("what is it?"));
  // The agent itself can read it, in the same process.
  const copy = `[[tool Bash {"command":"cp ${path} seen-${kind}.png"}]] [[say Copied.]]`;
  history.push(assistant(first.content), user(copy));
  const [origin, message] = await create(caller, history);
  assert.deepEqual([origin, texts(message)], ["warm", ["Copied."]]);
  assert.ok(readFileSync(inFolder(kind, `seen-${kind}.png`)).equals(data));
}

/** The client's tools through the SDK's runner, an answer with a form, and token counts. */
async function ownTools(kind) {
  const caller = client(kind);
  const calls = [];
  const run = ({ a, b }) => {
    calls.push([a, b]);
    return String(a + b);
  };
  const input_schema = { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } };
  const tool = { name: "add", description: "Adds.", input_schema, run, parse: (input) => input };
  const message = await caller.beta.messages.toolRunner(body([user(CALLS)], { tools: [tool] }));
  assert.deepEqual(calls, [[1, 2], [3, 4]]);
  assert.equal(message.content.at(-1).text, "Done.");
  const runner = caller.beta.messages.toolRunner(body([user(CALLS)], { tools: [tool], stream: true }));
  for await (const stream of runner) await stream.finalMessage();
  assert.equal(calls.length, 4);
  const schema = { type: "object", properties: { total: { type: "integer" } }, required: ["total"] };
  const form = { output_config: { format: { type: "json_schema", schema } } };
  const [, answer] = await create(caller, [user('[[say {"total": 10}]]')], form);
  assert.deepEqual(JSON.parse(texts(answer)[0]), { total: 10 });
  // The SDK would ask twice more, if Hob did not forbid it.
  let asked = 0;
  const countedFetch = (...given) => ((asked += 1), fetch(...given));
  const patient = client(kind, { maxRetries: 2, fetch: countedFetch });
  const wrong = [user('[[say {"total": "ten"}]]')];
  await raises(Anthropic.InternalServerError, () => create(patient, wrong, form), "form");
  assert.equal(asked, 1);
  const counted = await caller.messages.countTokens({ model: MODEL, messages: [user("x")] });
  assert.ok(counted.input_tokens > 0);
}

/** A memory store, and a batch of one message. */
async function storesAndBatches(caller) {
  const api = caller.beta.memoryStores;
  const store = await api.create({ name: "Notes" });
  const made = await api.memories.create(store.id, { path: "/a/b.md", content: "one" });
  await api.memories.update(made.id, { memory_store_id: store.id, content: "two" });
  const read = await api.memories.retrieve(made.id, { memory_store_id: store.id });
  assert.deepEqual([read.path, read.content], ["/a/b.md", "two"]);
  const operations = [];
  for await (const version of api.memoryVersions.list(store.id, { limit: 1 })) operations.push(version.operation);
  assert.deepEqual(operations, ["modified", "created"]);
  assert.equal((await api.delete(store.id)).type, "memory_store_deleted");

  const batches = caller.messages.batches;
  const batch = await batches.create({ requests: [{ custom_id: "a", params: body([user("[[say Yes.]]")]) }] });
  const end = Date.now() + 60_000;
  while ((await batches.retrieve(batch.id)).processing_status !== "ended") {
    assert.ok(Date.now() < end, "the batch does not end");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const texts = [];
  for await (const { result } of await batches.results(batch.id)) texts.push(result.message.content[0].text);
  assert.deepEqual(texts, ["Yes."]);
  await batches.delete(batch.id);
}

/** A session of Anthropic's Managed Agents that asks before it uses a tool. */
async function agentSessions(kind) {
  await storesAndBatches(client(kind));
  const api = client(kind).beta;
  const environment = await api.environments.create({ name: "here", config: { type: "self_hosted" } });
  const policy = { permission_policy: { type: "always_ask" } };
  const tools = [{ type: "agent_toolset_20260401", default_config: policy }];
  const agent = await api.agents.create({ name: "asker", model: "claude", tools });
  const session = await api.sessions.create({ agent: agent.id, environment_id: environment.id });
  const stream = await api.sessions.events.stream(session.id, { event_deltas: ["agent.message"] });
  const content = [{ type: "text", text: '[[say First.]] [[tool Bash {"command":"echo 12"}]] [[say Last.]]' }];
  await api.sessions.events.send(session.id, { events: [{ type: "user.message", content }] });
  const [words, deltas] = [[], []];
  for await (const event of stream) {
    if (event.type === "agent.message") words.push(event.content[0].text);
    if (event.type === "event_delta") deltas.push(event.delta.content.text);
    if (event.type !== "session.status_idle") continue;
    if (event.stop_reason.type === "end_turn") break;
    const [asked] = event.stop_reason.event_ids;
    const answer = { type: "user.tool_confirmation", tool_use_id: asked, result: "allow" };
    await api.sessions.events.send(session.id, { events: [answer] });
  }
  assert.deepEqual(words, ["First.", "Last."]);
  assert.equal(deltas.join(""), words.join(""));
  const types = [];
  for await (const event of api.sessions.events.list(session.id, { types: ["agent.tool_result"] })) types.push(event.type);
  assert.deepEqual(types, ["agent.tool_result"]);
  assert.equal((await api.sessions.archive(session.id)).status, "terminated");
  await raises(Anthropic.BadRequestError, () => api.sessions.events.send(session.id, { events: [{ type: "user.interrupt" }] }), "ended");
}

/** Limits of one live agent and six turns per minute. */
async function limits() {
  const caller = client("terminal");
  const stream = await caller.messages.create(body([user("[[hang]]")], { stream: true }));
  const error = await create(caller, [user("x")]).then(assert.fail, (error) => error);
  assert.ok(error instanceof Anthropic.InternalServerError && error.status === 529, error.stack);
  assert.deepEqual([error.type, error.headers.get("retry-after")], ["overloaded_error", "1"]);
  stream.controller.abort();
  await nothingLeft("terminal");
  // The slot is free a moment later, and the SDK retries by itself.
  assert.equal((await create(client("terminal", { maxRetries: 2 }), [user("y")]))[0], "fresh");
  // A warm process of one app is evicted for another app's turn.
  assert.equal((await create(client("stream"), [user("z")]))[0], "fresh");
  assert.deepEqual(await agents("terminal"), []);

  const eager = client("stream-broken");
  const history = [user("one")];
  for (let number = 0; number < 6; number += 1) {
    const [origin, message] = await create(eager, history);
    assert.equal(origin, number ? "warm" : "fresh");
    history.push(assistant(message.content), user("next"));
  }
  const limited = await raises(Anthropic.RateLimitError, () => create(eager, history), "minute");
  assert.ok(Number(limited.headers.get("retry-after")) > 0);
}

await main(
  { tenTurns, afterRestart, withWordsBefore, refusedAtOnce, failedTurns, brokenOff, pictures, ownTools, agentSessions, limits },
  "stream",
);
