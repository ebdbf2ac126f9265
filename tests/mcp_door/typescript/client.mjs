// A client of the official SDK for TypeScript: lists, calls, follows progress, answers a form, cancels. Says what it saw
// as one line of JSON. Arguments: "http" URL TOKEN, or "stdio" COMMAND...; the revision stands in REVISION.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [kind, ...where] = process.argv.slice(2);
const revision = process.env.REVISION;

function transport() {
  if (kind === "stdio") return new StdioClientTransport({ command: where[0], args: where.slice(1) });
  const requestInit = { headers: { Authorization: `Bearer ${where[1]}` } };
  return new StreamableHTTPClientTransport(new URL(where[0]), { requestInit });
}

const versionNegotiation = revision === "2026-07-28" ? { mode: { pin: revision } } : undefined;
const client = new Client(
  { name: "typescript", version: "1.0.0" },
  { capabilities: { elicitation: { form: {} } }, versionNegotiation },
);
const asked = [];
client.setRequestHandler("elicitation/create", async (request) => {
  asked.push(request.params.message);
  return { action: "accept", content: { approve: true } };
});
await client.connect(transport());

const seen = { revision: client.getNegotiatedProtocolVersion() };
seen.names = (await client.listTools()).tools.map((tool) => tool.name);
seen.said = (await client.callTool({ name: "say", arguments: { text: "größer" } })).content;
seen.sum = (await client.callTool({ name: "add", arguments: { first: 1, second: 2 } })).structuredContent;
seen.failed = await client.callTool({ name: "fail", arguments: {} });
seen.counted = (await client.callTool({ name: "count", arguments: { to: 2 } })).content;
seen.noted = (await client.callTool({ name: "note", arguments: { text: `${kind} ${revision}` } })).content;
seen.asked = asked.length;

// Progress of a call that doesn't end by itself: the SDK drops what lies in one read with the call's result.
const ending = new AbortController();
const onprogress = ({ progress, total }) => {
  seen.step = [progress, total];
  ending.abort();
};
const waiting = client.callTool({ name: "wait", arguments: {} }, { signal: ending.signal, onprogress });
seen.cancelled = await waiting.then(
  () => false,
  () => true,
);
seen.after = (await client.callTool({ name: "say", arguments: { text: "on" } })).content[0].text;
await client.close();
process.stdout.write(`${JSON.stringify(seen)}\n`);
