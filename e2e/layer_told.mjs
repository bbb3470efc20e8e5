// What the layers on top of the SDKs have in common. A script gets Hob's address and an app's token, runs its cases, and
// prints their names. A test compares them with the table in docs/v1.md.

import { readFileSync } from "node:fs";

export const [url, token] = process.argv.slice(2);

/** A prompt that makes the scripted agent call the client's function twice. */
export const CALLS = "[[tool mcp__app__add {\"a\": 1, \"b\": 2}]] [[tool mcp__app__add {\"a\": 3, \"b\": 4}]] [[say Sum {result}.]]";
/** A prompt that makes the scripted agent answer in a form. */
export const FORM = '[[say {"total": 10}]]';

/** Runs the cases and prints what was run. */
export async function main(layers, cases) {
  for (const [name, run] of Object.entries(cases)) {
    try {
      await run();
    } catch (error) {
      console.error(`${name}: ${error.stack}`);
      process.exit(1);
    }
  }
  const versions = JSON.parse(readFileSync(new URL("package.json", import.meta.url), "utf8")).dependencies;
  const packages = layers.map((name) => `\`${name}\` ${versions[name]}`).join(", ");
  console.log(`| ${packages} | ${Object.keys(cases).join(", ")} |`);
}
