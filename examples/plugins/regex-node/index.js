"use strict";
// A Fumehood plugin: reads HostFrames from stdin, writes PluginFrames to stdout. docs/protocol.md, part 1.

const path = require("node:path");
const { Worker } = require("node:worker_threads");
const { FrameReader } = require("./framing.js");
const { prepare } = require("./prepare.js");
const { decode, encode } = require("./wire.js");

const PROTOCOL_VERSION = 1;

/** Calls under way: invocation id, as text because it is 64 bits wide, to the thread that runs it. */
const running = new Map();
let leaving = false;

const send = (frame) => process.stdout.write(encode(frame));

function onHello(hello) {
  if (!hello.protocolVersions.includes(PROTOCOL_VERSION)) {
    process.stderr.write(`this plugin speaks version ${PROTOCOL_VERSION} of the wire alone\n`);
    process.exit(1);
  }
  send({ ready: { protocolVersion: PROTOCOL_VERSION, sdk: `regex-node/1.0.0 node/${process.versions.node}` } });
}

function onInvoke({ invocationId, tool, argumentsJson }) {
  const worker = new Worker(path.join(__dirname, "worker.js"), {
    workerData: { tool, arguments: JSON.parse(argumentsJson) },
  });
  const key = String(invocationId);
  running.set(key, worker);

  /** Exactly one Result for each Invoke, whatever comes first. */
  const finish = (outcome) => {
    if (running.get(key) !== worker) return;
    running.delete(key);
    send({ result: { invocationId, ...outcome } });
    if (leaving && running.size === 0) leave();
  };
  worker.on("message", ({ done, total, details, failure }) => {
    if (details) finish({ detailsJson: JSON.stringify(details) });
    else if (failure) finish({ error: failure });
    else if (running.get(key) === worker) {
      send({ update: { invocationId, message: `text ${done} of ${total}`, progress: done, total } });
    }
  });
  worker.on("error", (error) => finish({ error: { message: `the call's thread failed: ${error.message}` } }));
  worker.on("exit", () => finish({ error: { message: "the call was cancelled", reason: "cancelled" } }));
}

/** At once and on this thread: nothing of it takes long. */
function onPrepareArguments({ invocationId, tool, argumentsJson }) {
  try {
    send({ result: { invocationId, detailsJson: prepare(tool, argumentsJson) } });
  } catch (error) {
    send({ result: { invocationId, error: { message: error.message, reason: error.reason ?? "" } } });
  }
}

// Ending the thread ends even a regular expression that never returns; "exit" then sends the call's Result.
// A call that is not known was answered just before: the frames crossed.
const onCancel = ({ invocationId }) => running.get(String(invocationId))?.terminate();

function onShutdown() {
  leaving = true;
  if (running.size === 0) leave();
}

// What was written to a pipe may still be under way when process.exit is called.
const leave = () => process.stdout.write("", () => process.exit(0));

const reader = new FrameReader((bytes) => {
  const frame = decode(bytes);
  if (frame.hello) onHello(frame.hello);
  else if (frame.invoke) onInvoke(frame.invoke);
  else if (frame.prepareArguments) onPrepareArguments(frame.prepareArguments);
  else if (frame.cancel) onCancel(frame.cancel);
  else if (frame.shutdown) onShutdown();
  // Anything else is from a later version.
});

process.stdin.on("data", (piece) => reader.push(piece));
process.stdin.on("end", () => process.exit(0));
