// Vercel's AI SDK against Hob, over its OpenAI provider (both APIs) and its Anthropic provider.

import assert from "node:assert/strict";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { Output, generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

import { CALLS, FORM, main, token, url } from "./layer_told.mjs";

const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: token });
const anthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: token });
// The provider sends a JSON schema to models that it knows, and a tool to others.
const models = [openai.chat("claude"), openai.responses("claude"), anthropic("claude-sonnet-4-5")];

const each = (run) => async () => {
  for (const model of models) await run(model);
};

await main(["ai", "@ai-sdk/openai", "@ai-sdk/anthropic"], {
  text: each(async (model) => {
    const { text, usage } = await generateText({ model, system: "Be brief.", prompt: "one", temperature: 0 });
    assert.equal(text, "echo: one");
    assert.ok(usage.totalTokens > 0);
  }),
  streaming: each(async (model) => {
    const { textStream } = streamText({ model, prompt: "[[big 2000]]" });
    let length = 0;
    for await (const piece of textStream) length += piece.length;
    assert.equal(length, 2000);
  }),
  tools: each(async (model) => {
    const calls = [];
    const add = tool({
      description: "Adds two numbers.",
      inputSchema: z.object({ a: z.number(), b: z.number() }),
      execute: ({ a, b }) => {
        calls.push([a, b]);
        return String(a + b);
      },
    });
    const { text, steps } = await generateText({ model, prompt: CALLS, tools: { add }, stopWhen: isStepCount(5) });
    assert.deepEqual(calls, [[1, 2], [3, 4]]);
    assert.match(text, /Sum .*7/);
    assert.equal(steps.length, 3);
  }),
  "structured output": each(async (model) => {
    const schema = z.object({ total: z.number() });
    const { output } = await generateText({ model, prompt: FORM, output: Output.object({ schema }) });
    assert.deepEqual(output, { total: 10 });
  }),
});
