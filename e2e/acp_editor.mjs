// The protocol's own client library as an editor of `hob acp`. crates/hob/tests/e2e_sessions.rs runs it.
//
//     acp_editor.mjs HOB AGENT FOLDER
//
// HOB runs with the environment of this script. Prints `{"ok": true}` at the end; anything else is an error.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

import * as acp from "@agentclientprotocol/sdk";

const [hob, agent, cwd] = process.argv.slice(2);

/** Runs `work` with a new `hob acp`. */
async function editor(work) {
  const child = spawn(hob, ["acp", "--agent", agent], { stdio: ["pipe", "pipe", "inherit"] });
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
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
    });
  await app.connectWith(stream, async (hobAgent) => {
    const { methods } = acp;
    const started = await hobAgent.request(methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {},
    });
    assert.equal(started.protocolVersion, 1);
    await work(hobAgent, seen, methods.agent.session);
  });
  child.stdin.end();
  const code = await new Promise((done) => (child.exitCode === null ? child.on("exit", done) : done(child.exitCode)));
  assert.equal(code, 0);
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
  assert.deepEqual(seen.asked, ["touch it"]);
  await assert.rejects(hobAgent.request(session.prompt, prompt("unknown", "x")), /no session/);
});
await editor(async (hobAgent, seen, session) => {
  const { sessions } = await hobAgent.request(session.list, {});
  assert.deepEqual(sessions.map((one) => one.sessionId), [sessionId]);
  await hobAgent.request(session.load, { sessionId, cwd, mcpServers: [] });
  assert.ok(texts(seen, "user_message_chunk").startsWith("[[say Hello.]]"), JSON.stringify(seen));
  const running = hobAgent.request(session.prompt, prompt(sessionId, "[[say Begun.]] [[hang]]"));
  while (!texts(seen, "agent_message_chunk").endsWith("Begun.")) await new Promise((done) => setTimeout(done, 20));
  await hobAgent.notify(session.cancel, { sessionId });
  assert.equal((await running).stopReason, "cancelled");
});
console.log(JSON.stringify({ ok: true }));
