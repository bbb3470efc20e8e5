// Shared code of the scripts for the TypeScript SDKs, like sdk_told.py for Python.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { crc32, deflateSync } from "node:zlib";

export const told = JSON.parse(process.argv[2]);
export const real = told.real;
export const HEADER = "x-hob-session";
export const DRIVERS = ["terminal", "stream"];
export const SYSTEM = "You are Beaver, the harbour's clerk.";
export const work = (file) =>
  `[[say Looking.]] [[tool Bash {"command":"echo done > ${file}"}]] [[say Found it.]]`;
/** Calls of the client's own tool, in one message. */
export const CALLS =
  '[[say Adding.]] [[tool mcp__app__add {"a":1,"b":2}]] [[also mcp__app__add {"a":3,"b":4}]] [[say Done.]]';
export const PAIR = '[[tool Bash {"command":"echo a"}]] [[also Bash {"command":"echo b"}]] [[say Both.]]';

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// The file that a command line names. The prompt itself is never on it.
export function systemPrompt(command) {
  return readFileSync(/--append-system-prompt-file=(\S+)/.exec(command)[1], "utf-8");
}

export async function ask(question, more = {}) {
  console.log(JSON.stringify({ ask: question, ...more }));
  return JSON.parse((await lines.next()).value);
}

export const app = (kind) => told.apps[kind];
export const agents = (kind) => ask("agents", { app: app(kind).name });
export const nothingLeft = (kind) => ask("nothing left", { app: app(kind).name });
export const inFolder = (kind, name) => join(app(kind).cwd, name);

export async function onlyAgent(kind) {
  const found = await agents(kind);
  assert.equal(found.length, 1, JSON.stringify(found));
  return found[0];
}

/** Returns the messages, with roles, of the last request to the model that contains these words. */
export async function said(holding) {
  return (await ask("request", { holding })).said;
}

/** The error of exactly this class, with these words in it. */
export async function raises(kind, call, ...words) {
  let result;
  try {
    result = await call();
  } catch (error) {
    assert.equal(error?.constructor?.name, kind.name, error?.stack);
    for (const word of words) assert.ok(error.message.includes(word), `${word}: ${error.message}`);
    return error;
  }
  throw new Error(`${kind.name} was not thrown: ${JSON.stringify(result)}`);
}

export async function waitFor(path) {
  const end = Date.now() + 60_000;
  const text = () => (existsSync(path) ? readFileSync(path, "utf8").trim() : "");
  while (!text()) {
    assert.ok(Date.now() < end, `there is no ${path}`);
    await sleep(10);
  }
  return text();
}

/** A prompt whose tool runs forever, and the file with the tool's pid once it runs. Hob begins a stream with its first word. */
export function longWork(kind) {
  const name = `tool-${randomBytes(4).toString("hex")}`;
  const prompt = `[[say Begun.]] [[tool Bash {"command":"echo $$ > ${name}; exec sleep 1000"}]]`;
  return [prompt, inFolder(kind, name)];
}

/** A picture of one pixel that no other run has. */
export function png() {
  const chunk = (kind, data) => {
    const body = Buffer.concat([Buffer.from(kind), data]);
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(data.length);
    sum.writeUInt32BE(crc32(body));
    return Buffer.concat([length, body, sum]);
  };
  const header = Buffer.from([0, 0, 0, 1, 0, 0, 0, 1, 8, 2, 0, 0, 0]);
  const pixel = deflateSync(Buffer.concat([Buffer.from([0]), randomBytes(3)]));
  const mark = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  return Buffer.concat([mark, chunk("IHDR", header), chunk("IDAT", pixel), chunk("IEND", Buffer.alloc(0))]);
}

/** Returns the file that the prompt named to the agent. */
export function pathIn(text) {
  const paths = text.split("\n").filter((line) => line.startsWith("- /"));
  assert.equal(paths.length, 1, text);
  return paths[0].slice(2);
}

export async function restart(more = {}) {
  told.url = await ask("restart", more);
}

/** Runs a case and prints its duration. */
export async function timed(run, ...given) {
  const start = Date.now();
  const result = await run(...given);
  console.log(`${run.name} ${given[0] ?? ""}: ${((Date.now() - start) / 1000).toFixed(1)} s`);
  return result;
}

/** All cases of an SDK, in their order. */
export async function all(cases, own) {
  // Starting the real agent is slow. Cases that start many agents run once per SDK, some with one
  // driver and some with the other, and each does only a part of them.
  const kinds = real ? [own] : DRIVERS;
  const kept = {};
  for (const kind of DRIVERS) kept[kind] = await timed(cases.tenTurns, kind);
  const pictures = own === "terminal";
  if (!real || pictures) for (const kind of kinds) await timed(cases.pictures, kind);
  for (const kind of kinds) await timed(cases.ownTools, kind);
  if (cases.responses) for (const kind of kinds) await timed(cases.responses, kind);
  await timed(cases.agentSessions, "terminal");
  await restart();
  for (const kind of kinds) await timed(cases.afterRestart, kind, ...kept[kind]);
  if (!real || !pictures) {
    await restart({ history: "concat_message" });
    for (const kind of kinds) await timed(cases.withWordsBefore, kind);
    await restart();
  }
  await timed(cases.refusedAtOnce, "terminal");
  for (const kind of kinds) {
    await timed(cases.failedTurns, `${kind}-broken`);
    await timed(cases.brokenOff, `${kind}-broken`);
  }
}

export async function main(cases, own) {
  await (told.case === "all" ? all(cases, own) : cases.limits());
  console.log(JSON.stringify({ ok: true }));
  process.exit(0);
}
