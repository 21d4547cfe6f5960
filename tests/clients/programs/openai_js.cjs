// What the OpenAI SDK for JavaScript does with a server: `node openai_js.cjs URL`.
"use strict";
const { assert, fails, need, question, run, untilQueued, url } = require("./checks.cjs");
const OpenAI = need("openai").default ?? need("openai");

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0, timeout: 120_000 });
const create = (fields) =>
  client.chat.completions.create({
    model: "demo",
    messages: question,
    max_tokens: 24,
    ...fields,
  });
const weather = {
  name: "weather",
  description: "Tells the weather of a city.",
  parameters: {
    type: "object",
    properties: { city: { type: "string", maxLength: 12 } },
    required: ["city"],
    additionalProperties: false,
  },
  strict: true,
};
const tools = [{ type: "function", function: weather }];
const schema = {
  type: "object",
  properties: { city: { enum: ["Paris", "Rome"] }, is_large: { type: "boolean" } },
  required: ["city", "is_large"],
  additionalProperties: false,
};

run({
  async chat() {
    const answer = await create();
    assert.match(answer.choices[0].message.content, /Paris/);
  },
  async stream() {
    let text = "";
    let usage = null;
    const stream = await create({ stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.match(text, /Paris/);
    assert(usage.completion_tokens > 3);
  },
  async stream_helper() {
    const runner = client.chat.completions.stream({
      model: "demo",
      messages: question,
      max_tokens: 300,
    });
    assert.match(await runner.finalContent(), /Paris/);
  },
  async tools() {
    const messages = [{ role: "user", content: "What is the weather in Rome?" }];
    const answer = await create({
      messages,
      tools,
      tool_choice: "required",
      parallel_tool_calls: false,
      max_tokens: 200,
    });
    const message = answer.choices[0].message;
    assert.equal(answer.choices[0].finish_reason, "tool_calls");
    const call = message.tool_calls[0];
    assert.deepEqual(Object.keys(JSON.parse(call.function.arguments)), ["city"]);
    const again = await create({
      messages: [...messages, message, { role: "tool", tool_call_id: call.id, content: "sunny" }],
      tools,
      tool_choice: "none",
    });
    assert(again.choices[0].message.content);
  },
  async structured_output() {
    const answer = await client.chat.completions.parse({
      model: "demo",
      messages: question,
      response_format: { type: "json_schema", json_schema: { name: "city", schema, strict: true } },
      max_tokens: 200,
    });
    const value = JSON.parse(answer.choices[0].message.content);
    assert.deepEqual(Object.keys(value).sort(), ["city", "is_large"]);
  },
  async models() {
    const names = [];
    for await (const model of client.models.list()) names.push(model.id);
    assert.deepEqual(names, ["demo"]);
  },
  async errors() {
    let error = await fails(OpenAI.NotFoundError, create({ model: "gpt-nowhere" }));
    assert.equal(error.code, "model_not_found");
    error = await fails(OpenAI.BadRequestError, create({ temperature: 9 }));
    assert.equal(error.param, "temperature");
    const long = [{ role: "user", content: "word ".repeat(9000) }];
    error = await fails(OpenAI.BadRequestError, create({ messages: long, stream: true }));
    assert.equal(error.code, "context_length_exceeded");
    assert.match(error.message, /maximum context length is 409/);
    assert.match(error.requestID, /^req_/);
  },
  async abort() {
    const stream = await create({ stream: true, max_tokens: 1000 });
    for await (const _ of stream) {
      stream.controller.abort();
      break;
    }
    assert.match((await create({ max_tokens: 8 })).choices[0].message.content, /\w/);
  },
  async responses() {
    const answer = await client.responses.create({
      model: "demo",
      input: "What is the capital of France?",
      max_output_tokens: 24,
    });
    assert.match(answer.output_text, /Paris/);
    const again = await client.responses.create({
      model: "demo",
      input: "And of Italy?",
      previous_response_id: answer.id,
      max_output_tokens: 8,
    });
    assert(again.usage.input_tokens > answer.usage.input_tokens);
  },
  async responses_streamed() {
    const stream = client.responses.stream({
      model: "demo",
      input: "What is the capital of France?",
      max_output_tokens: 300,
    });
    const kinds = [];
    for await (const event of stream) kinds.push(event.type);
    assert.equal(kinds[0], "response.created");
    assert.equal(kinds.at(-1), "response.completed");
    assert.match((await stream.finalResponse()).output_text, /Paris/);
  },
  async retries() {
    const story = { messages: [{ role: "user", content: "Tell a long story." }], max_tokens: 600 };
    const running = await create({ ...story, stream: true });
    const waiting = create({ ...story, max_tokens: 4 });
    await untilQueued();
    const error = await fails(OpenAI.RateLimitError, create());
    assert(Number(error.headers.get("retry-after")) >= 1);
    const patient = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 20 });
    const retried = patient.chat.completions.create({
      model: "demo",
      messages: question,
      max_tokens: 4,
    });
    running.controller.abort(); // leaves room
    await Promise.all([waiting, retried]);
  },
});
