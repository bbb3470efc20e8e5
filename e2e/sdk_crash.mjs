// Both vendors' TypeScript SDKs while Hob is killed in the middle of a turn: see sdk_told.mjs. sdk_crash.py does the same
// with more faces.
//
// Each case leaves a turn running. `kill -9` ends the server, another one starts, and each client goes on where it was.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

import { DRIVERS, HEADER, app, ask, longWork, told, waitFor } from "./sdk_told.mjs";

const BEFORE = "[[say {history}]]";
// A turn that says a word and never ends.
const BEGUN = '[[say Begun.]] [[tool Bash {"command":"exec sleep 1000"}]]';

const fromAnthropic = (kind) => new Anthropic({ baseURL: told.url, apiKey: app(kind).token, maxRetries: 0 });
const fromOpenai = (kind) => new OpenAI({ baseURL: `${told.url}/v1`, apiKey: app(kind).token, maxRetries: 0 });
const user = (content) => ({ role: "user", content });
const assistant = (content) => ({ role: "assistant", content });

/** A prompt whose turn never ends, and a function that waits until the turn's tool runs. */
function running(kind) {
  const [prompt, file] = longWork(kind);
  return [prompt, async () => Number(await waitFor(file))];
}

/** Reads a stream until its connection breaks, and returns its events. */
async function breaks(events) {
  const seen = [];
  try {
    for (let next = await events.next(); !next.done; next = await events.next()) seen.push(next.value);
  } catch {
    return seen;
  }
  throw new Error(`the stream ended in good order: ${JSON.stringify(seen.slice(-3))}`);
}

async function until(what, check) {
  for (const end = Date.now() + 60_000; !(await check()); await sleep(50)) assert.ok(Date.now() < end, what);
}

const iterator = (stream) => stream[Symbol.asyncIterator]();

async function* messages(kind) {
  const [prompt, tool] = running(kind);
  const history = [user("one"), assistant("echo: one")];
  const body = (text) => ({ model: "sonnet", max_tokens: 100, messages: [...history, user(text)] });
  const stream = await fromAnthropic(kind).messages.create({ ...body(prompt), stream: true });
  const pid = await tool();
  yield pid;
  const seen = await breaks(iterator(stream));
  assert.ok(seen.every((event) => event.type !== "message_stop"), JSON.stringify(seen));
  const { data, response } = await fromAnthropic(kind).messages.create(body(BEFORE)).withResponse();
  assert.equal(response.headers.get(HEADER), "seeded");
  assert.ok(data.content[0].text.includes("echo: one"), JSON.stringify(data));
}

async function* chat(kind) {
  const [prompt, tool] = running(kind);
  const history = [user("one"), assistant("echo: one")];
  const body = (text) => ({ model: "sonnet", messages: [...history, user(text)] });
  const stream = await fromOpenai(kind).chat.completions.create({ ...body(prompt), stream: true });
  const pid = await tool();
  yield pid;
  const seen = await breaks(iterator(stream));
  assert.ok(seen.every((chunk) => chunk.choices[0].finish_reason === null), JSON.stringify(seen));
  const { data, response } = await fromOpenai(kind).chat.completions.create(body(BEFORE)).withResponse();
  assert.equal(response.headers.get(HEADER), "seeded");
  assert.ok(data.choices[0].message.content.includes("echo: one"), JSON.stringify(data));
}

async function* responses(kind) {
  const api = fromOpenai(kind).responses;
  const first = await api.create({ model: "sonnet", input: "one" });
  const [prompt, tool] = running(kind);
  const after = { model: "sonnet", previous_response_id: first.id };
  const events = iterator(await api.create({ ...after, input: prompt, stream: true }));
  const cut = (await events.next()).value.response.id;
  const pid = await tool();
  yield pid;
  await breaks(events);
  const again = fromOpenai(kind).responses;
  assert.equal((await again.retrieve(first.id)).output_text, "echo: one");
  assert.equal((await again.retrieve(cut)).status, "failed");
  assert.ok((await again.create({ ...after, input: BEFORE })).output_text.includes("echo: one"));
}

async function* background(kind) {
  const [prompt, tool] = running(kind);
  const made = await fromOpenai(kind).responses.create({ model: "sonnet", input: prompt, background: true });
  const pid = await tool();
  yield pid;
  const found = await fromOpenai(kind).responses.retrieve(made.id);
  assert.ok(found.status === "failed" && found.error.message, JSON.stringify(found));
}

async function* anthropicSessions(kind) {
  const api = fromAnthropic(kind).beta;
  const environment = await api.environments.create({ name: "here", config: { type: "cloud" } });
  const agent = await api.agents.create({ name: "worker", model: "claude", tools: [{ type: "agent_toolset_20260401" }] });
  const session = await api.sessions.create({ agent: agent.id, environment_id: environment.id });
  const send = (text) =>
    fromAnthropic(kind).beta.sessions.events.send(session.id, {
      events: [{ type: "user.message", content: [{ type: "text", text }] }],
    });
  const list = async () => {
    const ids = [];
    for await (const event of fromAnthropic(kind).beta.sessions.events.list(session.id)) ids.push(event.id);
    return ids;
  };
  const events = iterator(await api.sessions.events.stream(session.id));
  await send(BEGUN);
  const seen = [];
  while (seen.at(-1)?.type !== "agent.message") seen.push((await events.next()).value);
  yield null;
  seen.push(...(await breaks(events)));
  const known = await list();
  assert.deepEqual(seen.map((event) => event.id), known.slice(0, seen.length));
  const answers = iterator(await fromAnthropic(kind).beta.sessions.events.stream(session.id));
  await send("[[say Yes.]]");
  let event;
  do event = (await answers.next()).value;
  while (event.type !== "agent.message");
  assert.equal(event.content[0].text, "Yes.");
  const later = await list();
  assert.deepEqual(later.slice(0, known.length), known);
  assert.equal(new Set(later).size, later.length);
}

async function* openaiSessions(kind) {
  const api = fromOpenai(kind).beta.agents;
  const agent = await api.create({ model: "claude", name: "worker" });
  const made = await api.sessions.create({ agent_id: agent.id, environment: { type: "openai_hosted" } });
  const send = (text) =>
    fromOpenai(kind).beta.agents.sessions.events.create(made.id, {
      events: [
        { type: "agent.session.input.message", input: [{ role: "user", content: [{ type: "input_text", text }] }] },
      ],
    });
  const texts = async () => {
    const texts = [];
    for await (const item of fromOpenai(kind).beta.agents.sessions.items.list(made.id, { order: "asc" }))
      if (item.type === "message") texts.push(item.content[0].text);
    return texts;
  };
  await send(BEGUN);
  await until("the turn says a word", async () => (await texts()).includes("Begun."));
  yield null;
  const [turn] = (await fromOpenai(kind).beta.agents.sessions.turns.list(made.id)).data;
  assert.ok(!["completed", "in_progress", "queued"].includes(turn.status), JSON.stringify(turn));
  await send("[[say Yes.]]");
  await until("the next turn answers", async () => (await texts()).at(-1) === "Yes.");
  assert.deepEqual((await texts()).slice(0, 2), [BEGUN, "Begun."]);
}

const FACES = [messages, chat, responses, background, anthropicSessions, openaiSessions];

/** Runs all faces up to the middle of their turns, kills the server, and runs them to their ends. */
async function crash(kind) {
  const cases = FACES.map((face) => face(kind));
  const pids = [];
  for (const one of cases) pids.push((await one.next()).value);
  told.url = await ask("crash");
  await ask("gone", { pids: pids.filter(Boolean) });
  for (const [index, one] of cases.entries()) {
    const start = Date.now();
    assert.ok((await one.next()).done, FACES[index].name);
    console.log(`${FACES[index].name} ${kind}: ${((Date.now() - start) / 1000).toFixed(1)} s`);
  }
}

for (const kind of DRIVERS) await crash(kind);
console.log(JSON.stringify({ ok: true }));
process.exit(0);
