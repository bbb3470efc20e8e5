// Runs the server scenarios of the official MCP conformance suite against `/mcp`, in both eras of the protocol.
//
//   node mcp_conformance.mjs URL TOKEN
//
// The suite cannot send a token, so a proxy adds it. A scenario or check that does not apply is in a list below, with
// its reason, and in docs/mcp.md. It is an error if another one fails, or if one of the list passes.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const FOLDER = dirname(fileURLToPath(import.meta.url));
const SUITE = join(FOLDER, "node_modules/@modelcontextprotocol/conformance/dist/index.js");
const VERSIONS = ["2025-11-25", "2026-07-28"];
const MIN_PASSED = { "2025-11-25": 6, "2026-07-28": 9 };

/** Scenarios that do not apply, by the reason. A name ends with `*` for all that begin with it. */
const NOT_APPLICABLE = {
  "The suite's own test tools are called, and Hob has only the tools of its memory.": [
    "tools-call-*", "json-schema-2020-12", "elicitation-*", "http-custom-header-server-validation",
    "input-required-result-basic-*", "input-required-result-request-state",
    "input-required-result-multiple-input-requests", "input-required-result-multi-round",
    "input-required-result-result-type", "input-required-result-tampered-state",
    "input-required-result-capability-check",
  ],
  "Hob declares no resources, prompts, completions or logging.": [
    "resources-*", "prompts-*", "completion-complete", "logging-set-level", "input-required-result-non-tool-request",
  ],
};

/** Checks that do not apply within a scenario that does: they need the suite's own test tools. */
const UNTESTABLE_CHECKS = [
  "sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
  "sep-2575-http-server-no-independent-requests-on-stream", "sep-2575-server-no-log-without-loglevel",
];

/** Checks of the lists that Hob does not declare, within a scenario that applies to its tools. */
const UNDECLARED_CHECKS = [
  "sep-2549-prompts-list-caching-hints", "sep-2549-resources-list-caching-hints",
  "sep-2549-resources-templates-list-caching-hints",
];

const [target, token] = [new URL(process.argv[2]), process.argv[3]];

/** Passes requests on with the token. */
const proxy = http.createServer((request, response) => {
  const headers = { ...request.headers, authorization: `Bearer ${token}` };
  const { method, url: path } = request;
  const onward = http.request({ host: target.hostname, port: target.port, path, method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  onward.on("error", () => response.destroy());
  response.on("close", () => onward.destroy());
  request.pipe(onward);
});

/** Runs all scenarios of a version, and returns their failed checks by their names. */
async function run(version, url) {
  const folder = mkdtempSync(join(tmpdir(), "hob-conformance-"));
  try {
    const command = ["--import", join(FOLDER, "conformance_loader.mjs"), SUITE, "server", "--url", url,
      "--suite", "all", "--spec-version", version, "--output-dir", folder];
    const suite = spawn(process.execPath, command, { stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [suite.stdout, suite.stderr]) stream.on("data", (data) => { output += data; });
    await new Promise((ended) => suite.on("close", ended));
    const results = {};
    for (const name of readdirSync(folder)) {
      const scenario = name.replace(/^server-/, "").replace(/-\d{4}-\d\d-\d\dT.*$/, "");
      const checks = JSON.parse(readFileSync(join(folder, name, "checks.json"), "utf8"));
      results[scenario] = checks.filter((check) => check.status === "FAILURE");
    }
    assert.ok(Object.keys(results).length > 20, output.slice(-2000));
    return results;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const patterns = Object.values(NOT_APPLICABLE).flat();
const matches = (pattern, name) => (pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern);

await new Promise((listening) => proxy.listen(0, "127.0.0.1", listening));
const url = `http://127.0.0.1:${proxy.address().port}/mcp`;
const runs = await Promise.all(VERSIONS.map((version) => run(version, url)));
proxy.close();
proxy.closeAllConnections();

const used = new Set();
const failedChecks = new Set();
const problems = [];
VERSIONS.forEach((version, index) => {
  let passed = 0;
  for (const [scenario, failures] of Object.entries(runs[index])) {
    const pattern = patterns.find((pattern) => matches(pattern, scenario));
    if (pattern && failures.length) {
      used.add(pattern);
      continue;
    }
    const unexpected = failures.filter((check) => !(
      (check.details?.untestable && UNTESTABLE_CHECKS.includes(check.id)) || UNDECLARED_CHECKS.includes(check.id)
    ));
    failures.forEach((check) => failedChecks.add(check.id));
    if (unexpected.length) problems.push(`${version} ${scenario}: ${JSON.stringify(unexpected)}`);
    else passed += 1;
  }
  if (passed < MIN_PASSED[version]) problems.push(`${version}: only ${passed} scenarios passed`);
  console.log(`${version}: ${passed} scenarios passed, ${Object.keys(runs[index]).length - passed} do not apply`);
});
patterns.filter((pattern) => !used.has(pattern)).forEach((pattern) => problems.push(`${pattern}: always passes`));
[...UNTESTABLE_CHECKS, ...UNDECLARED_CHECKS].filter((id) => !failedChecks.has(id)).forEach((id) => problems.push(`${id}: passes`));
const page = readFileSync(join(FOLDER, "../docs/mcp.md"), "utf8");
[...patterns, ...UNTESTABLE_CHECKS, ...UNDECLARED_CHECKS, ...Object.keys(NOT_APPLICABLE)]
  .filter((text) => !page.replace(/\s+/g, " ").includes(text))
  .forEach((text) => problems.push(`docs/mcp.md does not have: ${text}`));
assert.deepEqual(problems, []);
