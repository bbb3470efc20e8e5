// Hob's memory through the official TypeScript SDK: over `hob mcp` as the owner, over /mcp as an app.
//
//     mcp_client.mjs '{"command": [...], "env": {...}, "cwd": "...", "url": "...", "token": "..."}'
//
// Prints one line of JSON when every check passes; anything else is an exception and exit 1. The SDK
// checks every result against the tool's declared output schema. mcp_client.py does the same.

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const TOOLS = [
  "memory_capture",
  "memory_correct",
  "memory_forget",
  "memory_recall",
  "memory_stats",
  "memory_timeline",
];

// A wrong call, and words that its error must contain.
const WRONG = [
  ["memory_recall", { cue: 7 }, ["cue"]],
  ["memory_recall", {}, ["cue"]],
  ["memory_recall", { cue: "x", since: "yesterday" }, ["since"]],
  ["memory_recall", { cue: "x", colour: "red" }, ["colour"]],
  ["memory_capture", { text: "x", role: "robot" }, ["role"]],
  ["memory_capture", { text: "  " }, ["text"]],
  ["memory_correct", { record_id: "x" }, ["text"]],
  ["memory_forget", {}, ["record_id", "session_id"]],
  ["memory_timeline", { limit: "many" }, ["limit"]],
  ["memory_stats", { all: true }, ["all"]],
];

async function connected(transport) {
  const client = new Client({ name: "hob-e2e", version: "1" });
  await client.connect(transport);
  return client;
}

function overStdio({ command: [command, ...args], env, cwd }) {
  return connected(new StdioClientTransport({ command, args, env, cwd }));
}

function overHttp({ url }, token) {
  const requestInit = { headers: { authorization: `Bearer ${token}` } };
  return connected(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
}

async function call(client, name, args = {}) {
  const result = await client.callTool({ name, arguments: args });
  assert(!result.isError, JSON.stringify([name, args, result]));
  assert.deepEqual(JSON.parse(result.content[0].text), result.structuredContent);
  return result.structuredContent;
}

async function recall(client, cue, more = {}) {
  return (await call(client, "memory_recall", { cue, ...more })).hits;
}

const texts = (turns) => turns.map((turn) => turn.text);

// Every tool, from an empty memory; returns the record that is left, which is superseded.
async function exercise(client, tag) {
  assert.equal(client.getServerVersion().name, "hob");
  assert(client.getInstructions());
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((tool) => tool.name).sort(), TOOLS);
  for (const tool of tools) assert.equal(tool.outputSchema?.type, "object", tool.name);

  const before = await call(client, "memory_stats");
  assert.deepEqual([before.turns, before.last_ts, before.health], [0, null, "ok"]);

  const wrong = `The ${tag} ferry leaves at six from pier nine.`;
  const first = await call(client, "memory_capture", { text: wrong, cue: "boat timetable" });
  assert.equal(first.duplicate, false);
  const again = await call(client, "memory_capture", { text: wrong, cue: "boat timetable" });
  assert.deepEqual(again, { record_id: first.record_id, duplicate: true });
  let hits = await recall(client, `when does the ${tag} ferry leave?`);
  assert.deepEqual(texts(hits), [wrong]);
  assert.deepEqual([hits[0].record_id, hits[0].role], [first.record_id, "user"]);
  assert.deepEqual(texts(await recall(client, "boat timetable")), [wrong]);

  const right = `The ${tag} ferry leaves at seven from pier two.`;
  const second = await call(client, "memory_correct", { record_id: first.record_id, text: right });
  assert.equal(second.superseded, first.record_id);
  hits = await recall(client, `when does the ${tag} ferry leave?`);
  assert.deepEqual(texts(hits), [right, wrong]);
  assert.equal(hits[1].superseded_by, second.record_id);

  assert.deepEqual(texts((await call(client, "memory_timeline")).turns), [wrong, right]);
  const around = await call(client, "memory_timeline", { around: second.record_id, limit: 1 });
  assert.deepEqual(texts(around.turns), [right]);
  const stats = await call(client, "memory_stats");
  assert.deepEqual([stats.turns, stats.superseded, stats.health], [2, 1, "ok"]);
  assert(stats.last_ts);

  const forget = { record_id: second.record_id };
  const forgotten = await call(client, "memory_forget", forget);
  if (forgotten.request_id) {
    // The owner has to confirm it.
    assert.equal(forgotten.count, 0);
    assert(texts(await recall(client, `when does the ${tag} ferry leave?`)).includes(right));
  } else {
    assert.deepEqual(forgotten, { count: 1 });
    assert.deepEqual(await call(client, "memory_forget", forget), { count: 0 });
    assert.deepEqual(texts(await recall(client, `when does the ${tag} ferry leave?`)), [wrong]);
  }

  for (const [name, args, words] of WRONG) {
    const result = await client.callTool({ name, arguments: args });
    const said = result.content[0].text;
    const named = words.every((word) => said.includes(word));
    assert(result.isError && named, JSON.stringify([name, args, said]));
  }
  return [first.record_id, wrong];
}

// A record of another app does not exist, whatever is tried.
async function stranger(client, [record, text]) {
  for (const scope of [{ project: "*" }, {}]) {
    assert(!texts(await recall(client, text, scope)).includes(text));
    const { turns } = await call(client, "memory_timeline", { limit: 500, ...scope });
    assert(!texts(turns).includes(text));
  }
  assert.deepEqual(await call(client, "memory_forget", { record_id: record }), { count: 0 });
  for (const [name, args] of [
    ["memory_correct", { record_id: record, text: "mine now" }],
    ["memory_timeline", { around: record }],
  ]) {
    const result = await client.callTool({ name, arguments: args });
    assert(result.isError && result.content[0].text.includes(record), JSON.stringify(result));
  }
}

const told = JSON.parse(process.argv[2]);
const owner = await overStdio(told);
const app = await overHttp(told, told.token);
const owners = await exercise(owner, "owner");
const apps = await exercise(app, "app");
await stranger(app, owners);
await stranger(owner, apps);
for (const [client, name, [, text]] of [[owner, "owner", owners], [app, "app", apps]]) {
  const found = texts(await recall(client, "ferry", { project: "*" }));
  assert(found.includes(text) && found.every((hit) => hit.includes(`The ${name} ferry`)), JSON.stringify(found));
}
await owner.close();
await app.close();
await assert.rejects(overHttp(told, "hob_wrong"), "a wrong token was let in");
console.log(JSON.stringify({ ok: true, tools: TOOLS.length }));
