// The peer's load client, in its own language as it is used. Speaks what bench/harness/agent.py speaks: a JSON command a
// line on stdin, a JSON answer a line on stdout.
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const SERVER = fileURLToPath(new URL("server.mjs", import.meta.url));

async function connect() {
  const client = new Client({ name: "bench", version: "1.0.0" });
  const transport = new StdioClientTransport({ command: process.execPath, args: [SERVER] });
  await client.connect(transport);
  return { client, transport };
}

async function echo(client, text) {
  const result = await client.callTool({ name: "echo", arguments: { text } });
  if (result.content[0].text !== text) throw new Error("not an echo");
}

const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];

async function load(client, { in_flight, calls, text }) {
  const latencies_ms = [];
  let left = calls;
  const lane = async () => {
    while (left-- > 0) {
      const begun = performance.now();
      await echo(client, text);
      latencies_ms.push(performance.now() - begun);
    }
  };
  const begun = performance.now();
  await Promise.all(Array.from({ length: in_flight }, lane));
  const elapsed_s = (performance.now() - begun) / 1000;
  latencies_ms.sort((a, b) => a - b);
  return { p50_ms: at(latencies_ms, 0.5), p99_ms: at(latencies_ms, 0.99), per_s: calls / elapsed_s };
}

async function start({ text }) {
  const begun = performance.now();
  const { client } = await connect();
  await echo(client, text);
  const elapsed_ms = performance.now() - begun;
  await client.close();
  return { start_ms: elapsed_ms };
}

const say = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);
let connection;
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.do === "start") {
    say(await start(command));
  } else {
    connection ??= await connect();
    say(command.do === "load" ? await load(connection.client, command) : { server_pid: connection.transport.pid });
  }
}
await connection?.client.close();
