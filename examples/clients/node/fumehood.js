// What a program needs of Fumehood's gRPC API: a client, calls as promises, and failures as errors to switch on.

import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";
import protobuf from "protobufjs";

/** Where the `.proto` files are. In a repository of your own: a copy of the folder `protos`. */
const PROTOS = fileURLToPath(new URL("../../../protos", import.meta.url));

/** For calls that are expected to be quick; covers the start of a worker. Never call without a deadline. */
export const DEADLINE_MS = 30_000;

const { fumehood } = grpc.loadPackageDefinition(
  protoLoader.loadSync("fumehood/v1/tool_service.proto", {
    includeDirs: [PROTOS],
    longs: String, // a 64-bit number may not fit a JavaScript one
    enums: String,
    defaults: true,
    oneofs: true, // `response.event` names the field that is set
  }),
);

/** The tool was called, or could not be, and the answer is a failure. Switch on `code`, never on the message. */
export class ToolError extends Error {
  constructor({ code, category, retryable, message, detailsJson }) {
    super(message);
    this.name = "ToolError";
    this.code = code;
    this.category = category;
    this.retryable = retryable;
    this.details = JSON.parse(detailsJson || "{}");
  }
}

/** A client holds one connection for all its calls: make it once, share it, `close()` it. */
export const connect = (address) => new fumehood.v1.ToolService(address, grpc.credentials.createInsecure());

/** Options with a deadline so many milliseconds from now. gRPC sends it along, and it travels into the plugin. */
export const within = (milliseconds) => ({ deadline: Date.now() + milliseconds });

/** A unary method as a promise: `await unary(client, "listTools", {})`. Rejects with a `grpc.ServiceError`. */
export function unary(client, method, request, milliseconds = DEADLINE_MS) {
  return new Promise((resolve, reject) => {
    client[method](request, within(milliseconds), (error, response) => (error ? reject(error) : resolve(response)));
  });
}

/** Arguments travel as JSON text: a protobuf Struct would turn each integer into a double. */
export function callRequest(tool, args, { callId = "", timeoutMs } = {}) {
  const timeout = timeoutMs && { seconds: Math.floor(timeoutMs / 1000), nanos: (timeoutMs % 1000) * 1e6 };
  return { tool, argumentsJson: JSON.stringify(args), callId, timeout };
}

/** One call. Rejects with a `ToolError` from the call itself, with a `grpc.ServiceError` from the way there. */
export async function call(client, request) {
  const { result } = await unary(client, "callTool", request);
  if (result.isError) throw new ToolError(result.error);
  return result;
}

/** What one message of a session may hold: so many requests by the protocol, and half of what gRPC takes by default. */
const MOST_COMBINED = 128;
const MOST_COMBINED_BYTES = 1024 * 1024;

/**
 * Writes to a session. gRPC writes one message at a time: what becomes ready meanwhile travels in the next, combined.
 * Read the session by `apart`. `end` half-closes it once all is written.
 */
export function combining(session) {
  const ready = [];
  let writing = false;
  let ended = false;

  function take() {
    const requests = [ready.shift()];
    let bytes = sizeOf(requests[0]);
    while (ready.length > 0 && requests.length < MOST_COMBINED) {
      bytes += sizeOf(ready[0]);
      if (bytes > MOST_COMBINED_BYTES) break;
      requests.push(ready.shift());
    }
    return requests.length > 1 ? { combined: { requests } } : requests[0];
  }

  function next() {
    if (ready.length > 0) {
      session.write({ ...take(), acceptsCombined: true }, next);
    } else {
      writing = false;
      if (ended) session.end();
    }
  }

  function start() {
    if (writing) return;
    writing = true;
    setImmediate(next); // what else becomes ready in this turn travels along
  }

  return {
    write(request) {
      ready.push(request);
      start();
    },
    end() {
      ended = true;
      start();
    },
  };
}

const sizeOf = ({ call }) => Buffer.byteLength(call?.argumentsJson ?? "");

/** The responses of a session, each alone: `for await (const response of apart(session))`. */
export async function* apart(session) {
  for await (const response of session) {
    if (response.event === "combined") yield* response.combined.responses;
    else yield response;
  }
}

/** gRPC's own messages for details, as far as they are read here: google/rpc/status.proto and error_details.proto. */
const rpc = protobuf.Root.fromJSON({
  nested: {
    Any: { fields: { typeUrl: { type: "string", id: 1 }, value: { type: "bytes", id: 2 } } },
    Status: { fields: { details: { rule: "repeated", type: "Any", id: 3 } } },
    ErrorInfo: { fields: { reason: { type: "string", id: 1 }, domain: { type: "string", id: 2 } } },
  },
});

/** The machine-readable reason of a status. Undefined: gRPC itself made the status. */
export function errorInfo(error) {
  const [bytes] = error.metadata?.get("grpc-status-details-bin") ?? [];
  if (!bytes) return undefined;
  return rpc
    .lookupType("Status")
    .decode(bytes)
    .details.filter(({ typeUrl }) => typeUrl.endsWith("/google.rpc.ErrorInfo"))
    .map(({ value }) => rpc.lookupType("ErrorInfo").decode(value))
    .find(({ domain }) => domain === "fumehood");
}
