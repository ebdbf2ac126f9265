"""MCP servers of the tests' own, as npm and the Python index ship them: they keep notes in a folder."""

from __future__ import annotations

NODE = r"""#!/usr/bin/env node
const fs = require("fs"), path = require("path"), readline = require("readline");
const folder = process.argv[2] || "/nowhere";
const text = { type: "object", properties: { text: { type: "string" } } };
const tools = [
  { name: "list_notes", description: "Lists the notes that are in the folder.", inputSchema: { type: "object" },
    annotations: { readOnlyHint: true, openWorldHint: false } },
  { name: "keep_note", description: "Writes a note into the folder.", inputSchema: text,
    annotations: { readOnlyHint: false, openWorldHint: false } },
  { name: "tell", description: "Says what the server was given.", inputSchema: { type: "object" } },
];
function call({ name, arguments: given }) {
  if (name === "list_notes") return fs.readdirSync(folder).sort().join(",");
  if (name === "keep_note") { fs.writeFileSync(path.join(folder, "note"), given.text || ""); return "kept"; }
  return JSON.stringify({ level: process.env.LEVEL, key: process.env.API_KEY, home: process.env.SOME_VARIABLE });
}
function answer(method, params) {
  if (method === "initialize")
    return { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "notes", version: "1" } };
  if (method === "tools/list") return { tools };
  if (method === "ping") return {};
  if (method !== "tools/call") return undefined;
  try { return { content: [{ type: "text", text: call(params) }] }; }
  catch (error) { return { content: [{ type: "text", text: error.code || String(error) }], isError: true }; }
}
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = answer(method, params);
  const said = result ? { result } : { error: { code: -32601, message: "no such method" } };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...said }) + "\n");
});
"""

PYTHON = """
import json
import os
import sys

TOOLS = [{"name": "whoAmI", "description": "Says what the server was given.", "inputSchema": {"type": "object"}}]


def answer(method, params):
    if method == "initialize":
        about = {"name": "who", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": " ".join(sys.argv[1:]) + os.environ.get("SOME_VARIABLE", "")}]}
    return None


def run():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = answer(message["method"], message.get("params"))
            said = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
"""
