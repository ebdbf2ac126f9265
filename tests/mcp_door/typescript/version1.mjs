// A client of version 1 of the official SDK for TypeScript, which holds the structured content of errors as well against
// a tool's output schema once it has listed the tools. Says what each call of "add" came to as one line of JSON.
// Arguments: COMMAND...; the calls' arguments stand in CALLS, as JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "typescript", version: "1.0.0" });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const listed = (await client.listTools()).tools.find((tool) => tool.name === "add");
const seen = { outputSchema: listed.outputSchema !== undefined, came: [] };
for (const each of JSON.parse(process.env.CALLS)) {
  try {
    seen.came.push(await client.callTool({ name: "add", arguments: each }));
  } catch (error) {
    seen.came.push({ thrown: String(error) });
  }
}
await client.close();
process.stdout.write(`${JSON.stringify(seen)}\n`);
