// Streams of the Anthropic SDK for JavaScript, as it is by default, from an engine silent at first:
// `node silence_anthropic.cjs URL`; the prompt is in the environment.
"use strict";
const { assert, need, run, url } = require("./checks.cjs");
const Anthropic = need("@anthropic-ai/sdk").default ?? need("@anthropic-ai/sdk");

const client = new Anthropic({ baseURL: url, authToken: "any", apiKey: null });
const fields = {
  model: "silent",
  max_tokens: 100,
  messages: [{ role: "user", content: process.env.PROMPT }],
};

async function message() {
  let text = "";
  for await (const event of await client.messages.create({ ...fields, stream: true }))
    if (event.type === "content_block_delta") text += event.delta.text;
  assert.equal(text, "ok");
}

async function helper() {
  const answer = await client.messages.stream(fields).finalMessage();
  assert.deepEqual(
    answer.content.map((block) => block.text),
    ["ok"],
  );
}

run({
  async every_stream() {
    await Promise.all([message(), helper()]);
  },
});
