// OpenAI's own TypeScript SDK against Hob: see sdk_told.mjs. sdk_openai.py does the same.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import OpenAI from "openai";

import {
  CALLS, HEADER, PAIR, SYSTEM, agents, app, ask, inFolder, longWork, main, nothingLeft, onlyAgent, pathIn, png,
  raises, real, said, told, waitFor, work, systemPrompt,
} from "./sdk_told.mjs";

const MODEL = "sonnet";

const at = (apiKey, more = {}) => new OpenAI({ baseURL: `${told.url}/v1`, apiKey, maxRetries: 0, ...more });
const client = (kind) => at(app(kind).token);
const body = (messages, more = {}) => ({ model: MODEL, messages, ...more });
const user = (content) => ({ role: "user", content });
const assistant = (content) => ({ role: "assistant", content });
const system = (content = SYSTEM) => ({ role: "system", content });

/** One turn: whether its process was warm, seeded or fresh, and the message. */
async function create(caller, messages, more = {}) {
  const asked = caller.chat.completions.create(body(messages, more));
  const { data, response } = await asked.withResponse();
  assert.ok(data.object === "chat.completion" && data.choices.length === 1, JSON.stringify(data));
  assert.ok(data.id.startsWith("chatcmpl-") && data.created > 0, JSON.stringify(data));
  const [choice] = data.choices;
  assert.deepEqual([choice.finish_reason, choice.message.role], ["stop", "assistant"]);
  assert.equal(choice.message.tool_calls, undefined);
  const { prompt_tokens, completion_tokens, total_tokens } = data.usage;
  assert.ok(prompt_tokens > 0 && completion_tokens > 0, JSON.stringify(data.usage));
  assert.equal(total_tokens, prompt_tokens + completion_tokens);
  return [response.headers.get(HEADER), choice.message];
}

/** One turn in pieces: whether its process was warm, seeded or fresh, and its text. */
async function inPieces(caller, messages, kind) {
  const more = { stream: true, stream_options: { include_usage: true } };
  const asked = caller.chat.completions.create(body(messages, more));
  const { data, response } = await asked.withResponse();
  const chunks = [];
  for await (const chunk of data) chunks.push(chunk);
  assert.ok(chunks.every((chunk) => chunk.object === "chat.completion.chunk"));
  assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
  assert.equal(chunks[0].choices[0].delta.role, "assistant");
  assert.ok(chunks.at(-1).choices.length === 0 && chunks.at(-1).usage.completion_tokens > 0);
  assert.equal(chunks.at(-2).choices[0].finish_reason, "stop");
  const pieces = chunks.slice(0, -1).map((chunk) => chunk.choices[0].delta.content).filter(Boolean);
  const blocks = pieces.filter((piece) => piece !== "\n\n");
  assert.ok(kind === "terminal" ? blocks.length === 2 : blocks.length > 2, `${blocks.length}`);
  return [response.headers.get(HEADER), pieces.join("")];
}

/** One process, and every shape in which a client may send the answers back. */
async function tenTurns(kind) {
  const caller = client(kind);
  const [history, origins, words] = [[system()], [], []];
  const turn = async (prompt, expected, echo) => {
    history.push(user(prompt));
    const [origin, message] = await create(caller, history);
    assert.equal(message.content, expected);
    origins.push(origin);
    words.push([prompt, expected]);
    history.push(echo(message));
  };
  const text = (message) => assistant(message.content);
  const parts = (message) => assistant([{ type: "text", text: message.content }]);
  const whole = (message) => message;

  await turn("one", "echo: one", text);
  const agent = await onlyAgent(kind);
  await turn("two", "echo: two", parts);
  const both = "Looking.\n\nFound it.";
  await turn(work(`${kind}-0`), both, whole);
  await turn(work(`${kind}-1`), both, () => assistant("Found it."));
  await turn(work(`${kind}-2`), both, parts);
  await turn(PAIR, "Both.", (message) => structuredClone(message));
  await turn("[[think Hm.]] [[say Thought.]]", "Thought.", whole);
  for (const number of [0, 1, 2]) await waitFor(inFolder(kind, `${kind}-${number}`));

  const prompt = '[[big 2000]] [[tool Bash {"command":"true"}]] [[big 1500]]';
  history.push(user([{ type: "text", text: prompt }]));
  const [origin, long] = await inPieces(caller, history, kind);
  assert.equal(long.length, 3502);
  origins.push(origin);
  words.push([prompt, long]);
  history.push(assistant(long));

  // The helper of the SDK.
  history.push(user("[[big 3000]]"));
  const helper = caller.chat.completions.stream(body(history));
  const pieces = [];
  helper.on("content", (piece) => piece && pieces.push(piece));
  const { message } = (await helper.finalChatCompletion()).choices[0];
  assert.equal(pieces.join(""), message.content);
  assert.equal(message.content.length, 3000);
  assert.ok(kind === "terminal" ? pieces.length === 1 : pieces.length > 1, `${pieces.length}`);
  words.push(["[[big 3000]]", message.content]);
  history.push(message);

  await turn("ten", "echo: ten", whole);
  // The helper does not expose headers, but the turn after it was warm in the same process.
  assert.deepEqual(origins, ["fresh", ...Array(8).fill("warm")]);
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
  const [origin, message] = await create(caller, history);
  assert.equal(origin, "seeded");
  if (real) {
    const expected = words.flatMap(([prompt, answer], index) => {
      // What the client left out is no longer part of the conversation.
      return [["user", prompt], ["assistant", index === 3 ? "Found it." : answer]];
    });
    assert.deepEqual(await said("eleven"), [...expected, ["user", history.at(-1).content]]);
  } else {
    for (const word of ["one", "echo: two", "Found it.", "Thought.", "of a long answer", "echo: ten"])
      assert.ok(message.content.includes(word), word);
  }
  history.push(message, user("twelve"));
  assert.equal((await create(caller, history))[0], "warm");
}

/** The history goes before the first prompt. */
async function withWordsBefore(kind) {
  const history = [user("alpha"), assistant("beta"), user([{ type: "text", text: "gamma" }])];
  const [seeded, first] = await create(client(kind), history);
  assert.equal(seeded, "seeded");
  for (const word of ["Previous conversation context:", "[User]: alpha", "[Assistant]: beta", "gamma"])
    assert.ok(first.content.includes(word), first.content);
  history.push(first, user("delta"));
  const [origin, message] = await create(client(kind), history);
  assert.deepEqual([origin, message.content], ["warm", "echo: delta"]);
}

async function refusedAtOnce(kind) {
  const caller = client(kind);
  const stranger = at("hob_wrong");
  const unknown = await raises(OpenAI.AuthenticationError, () => create(stranger, [user("x")]), "token");
  assert.equal(unknown.code, "invalid_api_key");
  await raises(OpenAI.AuthenticationError, () => stranger.models.list());
  const bad = (words, messages, more) =>
    raises(OpenAI.BadRequestError, () => create(caller, messages, more), ...words);
  const empty = await bad(["messages"], []);
  assert.deepEqual([empty.type, empty.param], ["invalid_request_error", "messages"]);
  await bad(["last message"], [user("x"), assistant("y")]);
  await bad(["messages"], [system()]);
  const tool = { type: "custom", custom: { name: "f" } };
  assert.equal((await bad(["custom"], [user("x")], { tools: [tool] })).param, "tools[0].type");
  await bad(["n"], [user("x")], { n: 2 });
  await bad(["data:"], [user([{ type: "image_url", image_url: { url: "https://example.com/x.png" } }])]);
  const found = [];
  for await (const model of caller.models.list()) found.push(model.id);
  assert.deepEqual(found.slice(0, 2), ["claude", "opus"]);
  assert.equal((await caller.models.retrieve("sonnet")).object, "model");
  await raises(OpenAI.NotFoundError, () => caller.models.retrieve("nosuch"));
}

/** The model's own errors. Each ends its process, and the next call works. */
async function failedTurns(kind) {
  const caller = client(kind);
  const all = [
    [429, OpenAI.RateLimitError], [529, OpenAI.InternalServerError], [404, OpenAI.NotFoundError],
    [400, OpenAI.BadRequestError], [500, OpenAI.InternalServerError],
  ];
  for (const [status, expected] of all) {
    // One is enough for the real agent: each ends a process that starts slowly.
    if (real && status !== 529) continue;
    if (real && status === 404) {
      const call = () => create(caller, [user("x")], { model: "nonexist-1" });
      await raises(expected, call, "nonexist-1");
      continue;
    }
    const call = () => create(caller, [user(`[[error ${status} it is so]]`)]);
    assert.equal((await raises(expected, call, "it is so")).status, status === 529 ? 503 : status);
  }
  if (!real) {
    await raises(OpenAI.InternalServerError, () => create(caller, [user("[[crash]]")]), "claude");
  }
  if (real) return nothingLeft(kind);
  // Once a stream has begun, an error is a piece of it.
  const asked = body([user("[[error 529 it is so]]")], { stream: true });
  const read = async () => {
    for await (const _ of await caller.chat.completions.create(asked));
  };
  const error = await read().then(assert.fail, (error) => error);
  assert.ok(error instanceof OpenAI.APIError && error.code === "overloaded", error.stack);
  await nothingLeft(kind);
}

/** A closed stream, a timeout and an abort: nothing is left, and the next call works. */
async function brokenOff(kind) {
  const caller = client(kind);
  {
    const [prompt, pid] = longWork(kind);
    const stream = await caller.chat.completions.create(body([user(prompt)], { stream: true }));
    let pids;
    for await (const chunk of stream) {
      assert.equal(chunk.choices[0].delta.role, "assistant");
      const tool = Number(await waitFor(pid));
      pids = [...(await agents(kind)).map((agent) => agent.pid), tool];
      assert.equal(pids.length, 2);
      // Leaving the loop closes the stream.
      break;
    }
    await ask("gone", { pids });
    await nothingLeft(kind);
  }
  const slow = () =>
    caller.chat.completions.create(body([user("[[say x]] [[hang]]")]), { timeout: real ? 4000 : 1000 });
  await raises(OpenAI.APIConnectionTimeoutError, slow);
  await nothingLeft(kind);
  if (!real) {
    const [prompt, pid] = longWork(kind);
    const abort = new AbortController();
    const asked = caller.chat.completions.create(body([user(prompt)]), { signal: abort.signal });
    const failed = raises(OpenAI.APIUserAbortError, () => asked);
    const tool = Number(await waitFor(pid));
    abort.abort();
    await failed;
    await ask("gone", { pids: [tool] });
    await nothingLeft(kind);
  }
  const messages = [
    system([{ type: "text", text: "First words." }]),
    { role: "developer", content: "Second words." }, user('[[say {"and": "now"}]]'),
  ];
  const [origin, message] = await create(caller, messages, {
    temperature: 0.5, top_p: 0.5, max_tokens: 100, stop: ["x"], seed: 1, user: "u", n: 1,
    response_format: { type: "json_object" },
  });
  assert.deepEqual([origin, message.content], ["fresh", '{"and": "now"}']);
  const { command } = await onlyAgent(kind);
  assert.ok(systemPrompt(command).includes("First words.\n\nSecond words.\n\nAnswer with one JSON object"), command);
  if (real) {
    const request = await ask("request", { holding: "[[say {" });
    assert.ok(request.system.includes("First words.") && request.system.includes("Second words."));
  }
}

async function pictures(kind) {
  const caller = client(kind);
  const data = png();
  const url = `data:image/png;base64,${data.toString("base64")}`;
  const image = { type: "image_url", image_url: { url } };
  const history = [user([{ type: "text", text: "what is it?" }, image])];
  const [, first] = await create(caller, history);
  const path = pathIn(first.content);
  assert.ok(readFileSync(path).equals(data) && first.content.includes("what is it?"));
  // The agent itself can read it, in the same process.
  const copy = `[[tool Bash {"command":"cp ${path} seen-${kind}.png"}]] [[say Copied.]]`;
  history.push(first, user(copy));
  const [origin, message] = await create(caller, history);
  assert.deepEqual([origin, message.content], ["warm", "Copied."]);
  assert.ok(readFileSync(inFolder(kind, `seen-${kind}.png`)).equals(data));
}

/** The client's functions through the SDK's runner, and an answer with a form. */
async function ownTools(kind) {
  const caller = client(kind);
  const calls = [];
  const add = ({ a, b }) => {
    calls.push([a, b]);
    return String(a + b);
  };
  const parameters = { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } };
  const tools = [{ type: "function", function: { name: "add", function: add, parse: JSON.parse, parameters } }];
  const runner = caller.chat.completions.runTools(body([user(CALLS)], { tools }));
  assert.ok((await runner.finalContent()).endsWith("Done."));
  assert.deepEqual(calls, [[1, 2], [3, 4]]);
  const streamed = caller.chat.completions.runTools(body([user(CALLS)], { tools, stream: true }));
  assert.ok((await streamed.finalContent()).endsWith("Done."));
  assert.equal(calls.length, 4);
  const schema = { type: "object", properties: { total: { type: "integer" } }, required: ["total"] };
  const response_format = { type: "json_schema", json_schema: { name: "sum", schema } };
  const [, message] = await create(caller, [user('[[say {"total": 10}]]')], { response_format });
  assert.deepEqual(JSON.parse(message.content), { total: 10 });
  // The SDK would ask twice more, if Hob did not forbid it.
  let asked = 0;
  const countedFetch = (...given) => ((asked += 1), fetch(...given));
  const patient = at(app(kind).token, { maxRetries: 2, fetch: countedFetch });
  const wrong = [user('[[say {"total": "ten"}]]')];
  await raises(OpenAI.InternalServerError, () => create(patient, wrong, { response_format }), "form");
  assert.equal(asked, 1);
}

/** The Responses API: stored and continued, streamed, with functions and forms, in the background. */
async function responses(kind) {
  const caller = client(kind);
  const respond = async (input, more = {}) => {
    const { data, response } = await caller.responses.create({ model: MODEL, input, ...more }).withResponse();
    assert.ok(data.status === "completed" && data.usage.total_tokens > 0, JSON.stringify(data));
    return [response.headers.get(HEADER), data];
  };
  const [fresh, first] = await respond("one");
  assert.deepEqual([fresh, first.output_text], ["fresh", "echo: one"]);
  const [warm, second] = await respond("two", { previous_response_id: first.id });
  assert.deepEqual([warm, second.output_text], ["warm", "echo: two"]);
  assert.equal((await caller.responses.retrieve(second.id)).output_text, "echo: two");
  const items = [];
  for await (const item of caller.responses.inputItems.list(second.id)) items.push(item);
  assert.equal(items[0].content[0].text, "two");

  const parameters = { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } };
  const tools = [{ type: "function", name: "add", parameters, strict: false }];
  const names = [];
  const stream = caller.responses.stream({ model: MODEL, input: CALLS, tools });
  for await (const event of stream) names.push(event.type);
  let response = await stream.finalResponse();
  assert.deepEqual([names[0], names.at(-1)], ["response.created", "response.completed"]);
  const calls = [];
  for (;;) {
    const found = response.output.filter((item) => item.type === "function_call");
    if (!found.length) break;
    const outputs = found.map((call) => {
      const { a, b } = JSON.parse(call.arguments);
      calls.push([a, b]);
      return { type: "function_call_output", call_id: call.call_id, output: String(a + b) };
    });
    const [origin, next] = await respond(outputs, { tools, previous_response_id: response.id });
    assert.equal(origin, "warm");
    response = next;
  }
  assert.deepEqual(calls, [[1, 2], [3, 4]]);
  assert.ok(response.output_text.endsWith("Done."));

  const schema = { type: "object", properties: { total: { type: "integer" } }, required: ["total"] };
  const format = { type: "json_schema", name: "sum", schema };
  const [, formed] = await respond('[[say {"total": 10}]]', { text: { format } });
  assert.deepEqual(JSON.parse(formed.output_text), { total: 10 });
  await caller.responses.delete(formed.id);
  await raises(OpenAI.NotFoundError, () => caller.responses.retrieve(formed.id), formed.id);
  const hanging = await caller.responses.create({ model: MODEL, input: "[[hang]]", background: true });
  assert.equal((await caller.responses.cancel(hanging.id)).status, "cancelled");
  if (!real) await conversations(caller);
}

/** The Conversations API: items, metadata, and responses that belong to a conversation. */
async function conversations(caller) {
  const metadata = { topic: "sums" };
  const talk = await caller.conversations.create({ items: [user("before"), assistant("noted")], metadata });
  assert.deepEqual([talk.object, talk.metadata], ["conversation", metadata]);
  assert.deepEqual(await caller.conversations.retrieve(talk.id), talk);
  const asked = { model: MODEL, conversation: talk.id };
  const first = await caller.responses.create({ ...asked, input: "one" });
  assert.deepEqual([first.conversation.id, first.output_text], [talk.id, "echo: one"]);
  const second = caller.responses.create({ ...asked, input: "two", conversation: { id: talk.id }, top_p: 1 });
  const { response } = await second.withResponse();
  assert.deepEqual([response.headers.get(HEADER), response.headers.get("x-hob-ignored")], ["warm", "top_p"]);
  const stream = caller.responses.stream({ ...asked, input: "three" });
  assert.equal((await stream.finalResponse()).output_text, "echo: three");
  const texts = [];
  for await (const item of caller.conversations.items.list(talk.id, { order: "asc", limit: 3 })) {
    texts.push(item.content[0].text);
  }
  const expected = ["before", "noted", "one", "echo: one", "two", "echo: two", "three", "echo: three"];
  assert.deepEqual(texts, expected);
  const [item] = (await caller.conversations.items.create(talk.id, { items: [user("four")] })).data;
  const place = { conversation_id: talk.id };
  assert.deepEqual(await caller.conversations.items.retrieve(item.id, place), item);
  assert.equal((await caller.conversations.items.delete(item.id, place)).id, talk.id);
  await raises(OpenAI.NotFoundError, () => caller.conversations.items.retrieve(item.id, place), item.id);
  const changed = await caller.conversations.update(talk.id, { metadata: { topic: "none" } });
  assert.deepEqual(changed.metadata, { topic: "none" });
  assert.equal((await caller.conversations.delete(talk.id)).deleted, true);
  await raises(OpenAI.NotFoundError, () => caller.conversations.retrieve(talk.id), talk.id);
}

/** A session of OpenAI's Agents API with a function of the client. */
async function agentSessions(kind) {
  const api = client(kind).beta.agents;
  const parameters = { type: "object", properties: { a: { type: "number" } } };
  const add = { type: "function", name: "add", description: "Adds.", parameters };
  const agent = await api.create({ model: "claude", name: "adder", instructions: "Be kind.", tools: [add] });
  const calls = [];
  const stream = await api.sessions.create({
    agent_id: agent.id,
    environment: { type: "openai_hosted" },
    input: '[[say First.]] [[tool mcp__app__add {"a": 20}]] [[say Last.]]',
    stream: true,
    toolHandlers: { add: async (input) => (calls.push(input), "42") },
  });
  const result = await stream.finalResult();
  assert.deepEqual(calls, [{ a: 20 }]);
  assert.deepEqual(result.messages.map((message) => message.content[0].text), ["First.", "Last."]);
  assert.equal(result.turn.status, "completed");
  const items = [];
  for await (const item of api.sessions.items.list(result.turn.session_id, { order: "asc", limit: 2 })) items.push(item.type);
  // The transcript of the terminal may have a text after the call of its message.
  const expected = ["function_call", "function_call_output", "message", "message", "message"];
  assert.deepEqual([items[0], items.sort()], ["message", expected]);
  const deleted = await api.sessions.delete(result.turn.session_id);
  assert.ok(deleted.deleted);
}

/** Limits of one live agent and six turns per minute. */
async function limits() {
  const caller = client("terminal");
  const stream = await caller.chat.completions.create(body([user("[[hang]]")], { stream: true }));
  const error = await raises(OpenAI.InternalServerError, () => create(caller, [user("x")]), "limit");
  assert.deepEqual([error.status, error.code, error.headers.get("retry-after")], [503, "overloaded", "1"]);
  stream.controller.abort();
  await nothingLeft("terminal");
  // The slot is free a moment later, and the SDK retries by itself.
  assert.equal((await create(at(app("terminal").token, { maxRetries: 2 }), [user("y")]))[0], "fresh");
  // A warm process of one app is evicted for another app's turn.
  assert.equal((await create(client("stream"), [user("z")]))[0], "fresh");
  assert.deepEqual(await agents("terminal"), []);

  const eager = client("stream-broken");
  const history = [user("one")];
  for (let number = 0; number < 6; number += 1) {
    const [origin, message] = await create(eager, history);
    assert.equal(origin, number ? "warm" : "fresh");
    history.push(message, user("next"));
  }
  const limited = await raises(OpenAI.RateLimitError, () => create(eager, history), "minute");
  assert.equal(limited.code, "rate_limit_exceeded");
  assert.ok(Number(limited.headers.get("retry-after")) > 0);
}

await main(
  {
    tenTurns, afterRestart, withWordsBefore, refusedAtOnce, failedTurns, brokenOff, pictures, ownTools, responses,
    agentSessions, limits,
  },
  "terminal",
);
