// Runs the checks of a program against a client's own node_modules and prints how each one ended.
"use strict";
const assert = require("node:assert");
const { createRequire } = require("node:module");

exports.assert = assert;
exports.url = process.argv[2];
exports.need = createRequire(process.env.CLIENT_ROOT + "/");
exports.question = [{ role: "user", content: "What is the capital of France?" }];

// Return the error of a class that a promise must end with.
exports.fails = async (kind, promise) => {
  try {
    await promise;
  } catch (error) {
    assert(error instanceof kind, `${error}`);
    return error;
  }
  assert.fail(`no ${kind.name}`);
};

// Wait until one request runs and another one waits.
exports.untilQueued = async () => {
  for (let round = 0; round < 600; round++) {
    const { scheduler } = await (await fetch(`${exports.url}/health`)).json();
    if (scheduler.active >= 1 && scheduler.queued >= 1) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail("nothing waits");
};

exports.run = async (checks) => {
  const results = {};
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      results[name] = "ok";
    } catch (error) {
      results[name] = String(error.stack);
    }
  }
  console.log(JSON.stringify(results));
};
