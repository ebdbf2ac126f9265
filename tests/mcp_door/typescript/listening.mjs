// A client of the official SDK for TypeScript that is told of changed tools: says the names of each new list as one line
// of JSON, until its stdin ends. Arguments: URL TOKEN; the revision stands in REVISION.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, token] = process.argv.slice(2);
const revision = process.env.REVISION;
const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);
const versionNegotiation = revision === "2026-07-28" ? { mode: { pin: revision } } : undefined;
const onChanged = (error, tools) => say(error ? String(error) : tools.map((tool) => tool.name));
const client = new Client(
  { name: "typescript", version: "1.0.0" },
  { versionNegotiation, listChanged: { tools: { autoRefresh: true, debounceMs: 0, onChanged } } },
);
const requestInit = { headers: { Authorization: `Bearer ${token}` } };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
say({ revision: client.getNegotiatedProtocolVersion() });
process.stdin.resume();
process.stdin.on("end", async () => {
  await client.close();
  process.exit(0);
});
