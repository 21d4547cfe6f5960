// What the Anthropic SDK for JavaScript does with a server: `node anthropic_js.cjs URL`.
"use strict";
const { assert, fails, need, question, run, untilQueued, url } = require("./checks.cjs");
const Anthropic = need("@anthropic-ai/sdk").default ?? need("@anthropic-ai/sdk");

const settings = { baseURL: url, authToken: "any", apiKey: null, timeout: 120_000 };
const client = new Anthropic({ ...settings, maxRetries: 0 });
const create = (fields) =>
  client.messages.create({ model: "demo", messages: question, max_tokens: 24, ...fields });
const tools = [
  {
    name: "weather",
    description: "Tells the weather of a city.",
    input_schema: {
      type: "object",
      properties: { city: { type: "string", maxLength: 12 } },
      required: ["city"],
      additionalProperties: false,
    },
  },
];
const schema = {
  type: "object",
  properties: { city: { enum: ["Paris", "Rome"] }, is_large: { type: "boolean" } },
  required: ["city", "is_large"],
  additionalProperties: false,
};

run({
  async message() {
    const answer = await create({ system: "You are helpful." });
    assert.match(answer.content[0].text, /Paris/);
    assert(answer.usage.output_tokens > 3);
  },
  async stream() {
    const stream = client.messages.stream({ model: "demo", messages: question, max_tokens: 24 });
    let text = "";
    stream.on("text", (piece) => (text += piece));
    const final = await stream.finalMessage();
    assert.match(text, /Paris/);
    assert.equal(final.content[0].text, text);
  },
  async tools() {
    const messages = [{ role: "user", content: "What is the weather in Rome?" }];
    const answer = await create({
      messages,
      tools,
      tool_choice: { type: "any", disable_parallel_tool_use: true },
      max_tokens: 200,
    });
    assert.equal(answer.stop_reason, "tool_use");
    const call = answer.content.find((block) => block.type === "tool_use");
    assert.deepEqual(Object.keys(call.input), ["city"]);
    const result = { type: "tool_result", tool_use_id: call.id, content: "sunny" };
    const again = await create({
      messages: [
        ...messages,
        { role: "assistant", content: answer.content },
        { role: "user", content: [result] },
      ],
      tools,
      tool_choice: { type: "none" },
    });
    assert(again.content[0].text);
  },
  async structured_output() {
    const answer = await create({
      output_config: { format: { type: "json_schema", schema } },
      max_tokens: 200,
    });
    const value = JSON.parse(answer.content[0].text);
    assert.deepEqual(Object.keys(value).sort(), ["city", "is_large"]);
  },
  async count_tokens() {
    const counted = await client.messages.countTokens({ model: "demo", messages: question });
    const { usage } = await create({ max_tokens: 1 });
    assert.equal(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
  },
  async models() {
    const names = [];
    for await (const model of client.models.list()) names.push(model.id);
    assert.deepEqual(names, ["demo"]);
  },
  async errors() {
    let error = await fails(Anthropic.NotFoundError, create({ model: "claude-nowhere" }));
    assert.equal(error.error.error.type, "not_found_error");
    assert.match(error.requestID, /^req_/);
    const long = [{ role: "user", content: "word ".repeat(9000) }];
    error = await fails(Anthropic.BadRequestError, create({ messages: long, stream: true }));
    assert.match(error.message, /> 409/);
  },
  async retries() {
    const story = { messages: [{ role: "user", content: "Tell a long story." }], max_tokens: 600 };
    const running = await create({ ...story, stream: true });
    const waiting = create({ ...story, max_tokens: 4 });
    await untilQueued();
    const error = await fails(Anthropic.RateLimitError, create());
    assert(Number(error.headers.get("retry-after")) >= 1);
    const patient = new Anthropic({ ...settings, maxRetries: 20 });
    const retried = patient.messages.create({ model: "demo", messages: question, max_tokens: 4 });
    running.controller.abort(); // leaves room
    await Promise.all([waiting, retried]);
  },
});
