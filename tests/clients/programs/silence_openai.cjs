// Streams of the OpenAI SDK for JavaScript, as it is by default, from an engine silent at first:
// `node silence_openai.cjs URL`; the prompt is in the environment.
"use strict";
const { assert, need, run, url } = require("./checks.cjs");
const OpenAI = need("openai").default ?? need("openai");

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any" });
const prompt = process.env.PROMPT;
const model = "silent";
const messages = [{ role: "user", content: prompt }];

async function chat() {
  let text = "";
  let reasoning = "";
  for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
    text += chunk.choices[0].delta.content ?? "";
    reasoning += chunk.choices[0].delta.reasoning_content ?? "";
  }
  assert.deepEqual([text, reasoning], ["ok", ""]);
}

async function chatHelper() {
  const runner = client.chat.completions.stream({ model, messages });
  assert.equal(await runner.finalContent(), "ok");
}

async function responses() {
  let text = "";
  let last = null;
  for await (const event of await client.responses.create({ model, input: prompt, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  assert.deepEqual([text, last.type], ["ok", "response.completed"]);
}

run({
  async every_stream() {
    await Promise.all([chat(), chatHelper(), responses()]);
  },
});
