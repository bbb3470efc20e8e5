// The protocol's own client library as an editor of `hob acp` and `/acp`. crates/hob/tests/e2e_sessions.rs runs it.
//
//     acp_editor.mjs stdio FOLDER HOB
//     acp_editor.mjs http FOLDER URL TOKEN
//     acp_editor.mjs ws FOLDER URL TOKEN
//
// It prints `{"ask": "crash"}` in the middle of a turn, and is answered with the URL of the next server.
//
// HOB runs with the environment of this script. The agent is `acp`. Prints `{"ok": true}` at the end; anything else is an
// error.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";

import * as acp from "@agentclientprotocol/sdk";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import WebSocket from "ws";

const [transport, cwd, first, token] = process.argv.slice(2);
let place = first;
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Has the server killed and another one started. Over stdio, `place` is the program and stays. */
async function crash() {
  console.log(JSON.stringify({ ask: "crash" }));
  const url = JSON.parse((await answers.next()).value);
  if (transport !== "stdio") place = url;
}

/** Opens a connection: its stream, and a function that ends it. */
function connect() {
  if (transport === "stdio") {
    const child = spawn(place, ["acp", "--agent", "acp"], { stdio: ["pipe", "pipe", "inherit"] });
    const end = async () => {
      child.stdin.end();
      const code = await new Promise((done) => (child.exitCode === null ? child.on("exit", done) : done(child.exitCode)));
      assert.equal(code, 0);
    };
    return { stream: acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)), end };
  }
  const headers = { authorization: `Bearer ${token}` };
  const url = `${place}/acp?agent=acp`;
  const stream = transport === "http"
    ? createHttpStream(url, { headers })
    : createWebSocketStream(url.replace(/^http/, "ws"), { headers, WebSocket });
  return { stream, end: async () => {} };
}

/** Runs `work` with a new connection, which a server's end may cut. */
async function editor(work, { isCut = false } = {}) {
  const { stream, end } = connect();
  const seen = { updates: [], asked: [] };
  const app = acp
    .client({ name: "editor" })
    .onNotification(acp.methods.client.session.update, ({ params }) => {
      seen.updates.push(params);
    })
    .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
      seen.asked.push(params.toolCall.title);
      const { optionId } = params.options.find((option) => option.kind === "allow_once");
      return { outcome: { outcome: "selected", optionId } };
    })
    .onRequest(acp.methods.client.elicitation.create, ({ params }) => {
      seen.asked.push(params.message);
      return { action: "accept", content: { port: 8080 } };
    });
  const talk = app.connectWith(stream, async (hobAgent) => {
    const { methods } = acp;
    const started = await hobAgent.request(methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: { elicitation: { form: {} } },
    });
    assert.equal(started.protocolVersion, 1);
    await work(hobAgent, seen, methods.agent.session);
  });
  if (!isCut) {
    await talk;
    return end();
  }
  await talk.catch((error) => assert.ok(!(error instanceof assert.AssertionError), error));
}

const texts = (seen, kind) =>
  seen.updates.filter(({ update }) => update.sessionUpdate === kind).map(({ update }) => update.content.text).join("");
const prompt = (sessionId, text) => ({ sessionId, prompt: [{ type: "text", text }] });

let sessionId;
await editor(async (hobAgent, seen, session) => {
  ({ sessionId } = await hobAgent.request(session.new, { cwd, mcpServers: [] }));
  const first = await hobAgent.request(session.prompt, prompt(sessionId, "[[say Hello.]]"));
  assert.equal(first.stopReason, "end_turn");
  assert.ok(texts(seen, "agent_message_chunk").includes("Hello."), JSON.stringify(seen));
  await hobAgent.request(session.prompt, prompt(sessionId, "[[permission touch it]]"));
  const schema = '{"type":"object","properties":{"port":{"type":"integer"}},"required":["port"]}';
  const form = `[[request elicitation/create {"mode":"form","message":"Which port?","requestedSchema":${schema}}]]`;
  await hobAgent.request(session.prompt, prompt(sessionId, form));
  assert.ok(texts(seen, "agent_message_chunk").endsWith('{"action":"accept","content":{"port":8080}}'), JSON.stringify(seen));
  assert.deepEqual(seen.asked, ["touch it", "Which port?"]);
  await assert.rejects(hobAgent.request(session.prompt, prompt("unknown", "x")), /no session/);
});
await editor(async (hobAgent, seen, session) => {
  const { sessions } = await hobAgent.request(session.list, {});
  assert.ok(sessions.some((one) => one.sessionId === sessionId), JSON.stringify(sessions));
  await hobAgent.request(session.load, { sessionId, cwd, mcpServers: [] });
  assert.ok(texts(seen, "user_message_chunk").startsWith("[[say Hello.]]"), JSON.stringify(seen));
  const running = hobAgent.request(session.prompt, prompt(sessionId, "[[say Begun.]] [[hang]]"));
  while (!texts(seen, "agent_message_chunk").endsWith("Begun.")) await new Promise((done) => setTimeout(done, 20));
  await hobAgent.notify(session.cancel, { sessionId });
  assert.equal((await running).stopReason, "cancelled");
});
// The server is killed in the middle of a turn. The editor is told, connects again, and goes on with the session.
const told = (request) =>
  Promise.race([
    request.then((answer) => assert.fail(`it was answered: ${JSON.stringify(answer)}`), (error) => error),
    new Promise((_, fail) => setTimeout(() => fail(new assert.AssertionError({ message: "no error" })), 10_000)),
  ]);
let crashed;
await editor(async (hobAgent, seen, session) => {
  await hobAgent.request(session.load, { sessionId, cwd, mcpServers: [] });
  const running = told(hobAgent.request(session.prompt, prompt(sessionId, "[[say Again.]] [[hang]]")));
  while (!texts(seen, "agent_message_chunk").endsWith("Again.")) await new Promise((done) => setTimeout(done, 20));
  crashed = crash();
  await Promise.all([crashed, running]);
}, { isCut: true });
await crashed;
await editor(async (hobAgent, seen, session) => {
  const { sessions } = await hobAgent.request(session.list, {});
  assert.ok(sessions.some((one) => one.sessionId === sessionId), JSON.stringify(sessions));
  await hobAgent.request(session.load, { sessionId, cwd, mcpServers: [] });
  const before = texts(seen, "agent_message_chunk");
  assert.ok(before.includes("Begun.") && before.endsWith("Again."), JSON.stringify(seen));
  const next = await hobAgent.request(session.prompt, prompt(sessionId, "[[say Yes.]]"));
  assert.equal(next.stopReason, "end_turn");
  assert.ok(texts(seen, "agent_message_chunk").endsWith("Yes."), JSON.stringify(seen));
});
console.log(JSON.stringify({ ok: true }));
process.exit(0);
