// The MCP conformance suite imports `globSync`, which Node 20 does not have and the server scenarios do not use.
// Node loads this file before the suite, and then as the hooks that resolve the suite's import of `fs`.

import { register } from "node:module";
import { isMainThread } from "node:worker_threads";

if (isMainThread) register(import.meta.url);

const FILES = `export * from "node:fs"; export const globSync = () => { throw new Error("not in this Node"); };`;

export async function resolve(specifier, context, next) {
  if (specifier === "fs" && context.parentURL?.includes("/@modelcontextprotocol/conformance/")) {
    return { url: `data:text/javascript,${encodeURIComponent(FILES)}`, shortCircuit: true };
  }
  return next(specifier, context);
}
