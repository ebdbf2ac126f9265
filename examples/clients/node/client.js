// A client of Fumehood in Node: lists tools, calls one, streams one, and meets every kind of failure.
//
//     npm ci
//     node client.js unix:.fumehood/fumehood.sock      # or: FUMEHOOD_ADDRESS=127.0.0.1:7332 node client.js
//
// It expects a sidecar with the plugins of `examples/plugins/dice` and `text`, and exits with status 1 if anything is not
// as docs/protocol.md, part 2, says.

import assert from "node:assert/strict";
import grpc from "@grpc/grpc-js";
import {
  apart,
  call,
  callRequest,
  combining,
  connect,
  DEADLINE_MS,
  errorInfo,
  ToolError,
  unary,
  within,
} from "./fumehood.js";

const ADDRESS = process.argv[2] ?? process.env.FUMEHOOD_ADDRESS ?? "unix:.fumehood/fumehood.sock";
const SHORT_MS = 300; // for calls that are meant to run out of time
const SESSION_CALLS = 20;

/** Page by page: a sidecar may have a thousand tools, and a message has a size limit. */
async function listTools(client) {
  const names = [];
  let pageToken = "";
  do {
    const page = await unary(client, "listTools", { pageSize: 2, pageToken });
    // For a model, hand over each definition's name, description and inputSchemaJson.
    names.push(...page.tools.map(({ definition }) => definition.name));
    pageToken = page.nextPageToken;
  } while (pageToken);
  console.log(`tools: ${names.join(", ")}`);
  assert(names.includes("roll_dice") && names.includes("slow_count"), "the plugins dice and text are needed");
}

/** One call, and what it says of the sandbox that it ran in. */
async function callTool(client) {
  const result = await call(client, callRequest("roll_dice", { count: 2, sides: 6 }));
  const { rolls, total } = JSON.parse(result.detailsJson);
  const layers = result.sandbox.layers.map(({ name }) => name);
  console.log(`roll_dice: ${JSON.stringify(rolls)} makes ${total}, behind ${layers.join(", ")}`);
  assert.equal(rolls.length, 2);
  assert.equal(rolls[0] + rolls[1], total);
}

/** The same as a stream: started, updates, finished. A readable stream is an async iterable, and throws a bad status. */
async function streamTool(client) {
  const stream = client.streamTool(
    { call: callRequest("slow_count", { upto: 3, delay_ms: 20 }) },
    within(DEADLINE_MS),
  );
  let updates = 0;
  let finished;
  for await (const response of stream) {
    if (response.event === "started") {
      console.log("slow_count: started");
    } else if (response.event === "update") {
      const { message, progress, total } = response.update;
      updates += 1;
      console.log(`slow_count: ${message} (${progress} of ${total})`);
    } else if (response.event === "finished") {
      finished = response.finished;
    } // a newer sidecar says more
  }
  assert(finished && !finished.isError, "the stream ends with a result");
  assert.equal(updates, 3);
  console.log(`slow_count: finished, ${finished.detailsJson}`);
}

/** Two bounds. `timeout` of the request is answered with a result; gRPC's deadline cuts the call off. */
async function runOutOfTime(client) {
  const slow = { upto: 100, delay_ms: 100 };
  const late = await failure(ToolError, call(client, callRequest("slow_count", slow, { timeoutMs: SHORT_MS })));
  assert.equal(late.code, "TOOL_TIMEOUT");
  assert(late.retryable);
  console.log(`timeout: ${late.code} by the ${late.details.bound} after ${late.details.value} s`);

  try {
    const { result } = await unary(client, "callTool", callRequest("slow_count", slow), SHORT_MS);
    // The sidecar watches the same deadline. Now and then its answer is here before our own clock has noticed.
    assert.equal(result.error?.code, "CANCELLED_TIMEOUT", "a call outlived its deadline");
    console.log(`deadline: ${result.error.code}`);
  } catch (error) {
    if (error.code !== grpc.status.DEADLINE_EXCEEDED) throw error;
    console.log(`deadline: ${grpc.status[error.code]}`);
  }
}

/** Failures of the call come in its result, for the model to mend; refused requests as a gRPC status. */
async function readErrors(client) {
  const bad = await failure(ToolError, call(client, callRequest("roll_dice", { count: 11, sides: 7 })));
  assert.equal(bad.code, "TOOL_EXECUTION_FAILED");
  assert.equal(bad.details.reason, "invalid_arguments");
  console.log(`bad arguments: ${bad.code}, ${bad.details.reason}`);
  for (const { pointer, message, rule } of bad.details.arguments) console.log(`  ${pointer}: ${message} (${rule})`);
  assert.deepEqual(bad.details.arguments.map(({ pointer }) => pointer), ["/count", "/sides"]);

  const unknown = await failure(ToolError, call(client, callRequest("roll_dise", {})));
  assert.equal(unknown.code, "TOOL_NOT_FOUND");
  assert(!unknown.retryable);
  console.log(`unknown tool: ${unknown.code}: ${unknown.message}`);

  const refused = await failure(Error, call(client, callRequest("", {})));
  assert.equal(refused.code, grpc.status.INVALID_ARGUMENT);
  assert.equal(errorInfo(refused)?.reason, "REQUEST_INVALID");
  console.log(`bad request: ${grpc.status[refused.code]}, ${errorInfo(refused).reason}: ${refused.details}`);
}

/** Many calls over one stream, told apart by their ids, answered in any order. */
async function useSession(client) {
  const cancelledId = "count-to-cancel";
  const refusedId = "names-no-tool";
  const session = client.session(within(DEADLINE_MS));
  const waiting = new Set([cancelledId, refusedId]);
  const count = { finished: 0, refused: 0, cancelled: 0 };

  const requests = combining(session);
  requests.write({
    call: callRequest("slow_count", { upto: 1000, delay_ms: 20 }, { callId: cancelledId }),
    updates: true,
  });
  requests.write({ call: callRequest("", {}, { callId: refusedId }) });
  for (let number = 0; number < SESSION_CALLS; number += 1) {
    const callId = `roll-${number}`;
    waiting.add(callId);
    requests.write({ call: callRequest("roll_dice", { count: 1, sides: 20 }, { callId }) });
  }
  requests.end(); // half-closes the stream: calls under way finish, then the responses end too

  for await (const response of apart(session)) {
    if (response.event === "update") {
      // It runs, so it can be cancelled: once. NOT_FOUND would mean that it has just ended.
      const { callId, sequence } = response.update;
      if (sequence === "1") await unary(client, "cancelCall", { callId, reason: "seen enough" });
    } else if (response.event === "finished") {
      const { callId, isError, error } = response.finished;
      assert(waiting.delete(callId), `${callId} was answered twice`);
      if (callId === cancelledId) {
        assert.equal(error?.code, "CANCELLED_SIGNAL");
        count.cancelled += 1;
      } else {
        assert(!isError, error?.message);
        count.finished += 1;
      }
    } else if (response.event === "refused") {
      const { callId, statusCode, error } = response.refused;
      assert(waiting.delete(callId), `${callId} was answered twice`);
      assert.equal(callId, refusedId, error.message);
      assert.equal(statusCode, grpc.status.INVALID_ARGUMENT);
      assert.equal(error.code, "REQUEST_INVALID");
      count.refused += 1;
    }
  }
  assert.deepEqual([...waiting], [], "calls that were never answered");
  console.log(
    `session: ${count.finished} finished, ${count.refused} refused (REQUEST_INVALID), ` +
      `${count.cancelled} cancelled (CANCELLED_SIGNAL)`,
  );
}

/** The error that a promise is expected to end with. */
async function failure(kind, promise) {
  const value = await promise.catch((error) => error);
  if (value instanceof kind) return value;
  throw value instanceof Error ? value : new Error(`a failure was expected, not ${JSON.stringify(value)}`);
}

const client = connect(ADDRESS);
try {
  for (const step of [listTools, callTool, streamTool, runOutOfTime, readErrors, useSession]) await step(client);
  console.log("all as expected");
} catch (error) {
  console.error(`surprise: ${error.message}`);
  process.exitCode = 1;
} finally {
  client.close();
}
