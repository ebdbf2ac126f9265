"""MCP servers, as npm and the Python index ship them, that dial a port of this machine: at their start and in calls."""

from __future__ import annotations

NODE = r"""#!/usr/bin/env node
const net = require("net"), readline = require("readline");
function dial() {
  return new Promise((resolve) => {
    const socket = net.connect(%d, "127.0.0.1");
    socket.on("connect", () => (socket.destroy(), resolve("done")));
    socket.on("error", (error) => resolve(error.code));
  });
}
const atStart = dial();
const annotations = { readOnlyHint: false, openWorldHint: true };
const tools = ["dial_by_npx", "dial_in_secret_by_npx"].map((name) => ({
  name, description: "Says what came of its dialling.", inputSchema: { type: "object" },
  annotations: name === "dial_by_npx" ? annotations : { readOnlyHint: true, openWorldHint: false },
}));
async function answer(method) {
  if (method === "initialize")
    return { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "dials", version: "1" } };
  if (method === "tools/list") return { tools };
  if (method !== "tools/call") return undefined;
  return { content: [{ type: "text", text: JSON.stringify({ start: await atStart, call: await dial() }) }] };
}
readline.createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const result = await answer(method);
  const said = result ? { result } : { error: { code: -32601, message: "no such method" } };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...said }) + "\n");
});
"""

PYTHON = """
import errno
import json
import socket
import sys


def dial():
    try:
        socket.create_connection(("127.0.0.1", %d), 5).close()
        return "done"
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)


AT_START = dial()
WORLD = {"readOnlyHint": False, "openWorldHint": True}
READS = {"readOnlyHint": True, "openWorldHint": False}
ABOUT = {"description": "Says what came of its dialling.", "inputSchema": {"type": "object"}}
TOOLS = [
    {"name": "dial_by_uvx", "annotations": WORLD, **ABOUT},
    {"name": "dial_in_secret_by_uvx", "annotations": READS, **ABOUT},
]


def answer(method):
    if method == "initialize":
        about = {"name": "dials", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps({"start": AT_START, "call": dial()})}]}
    return None


def run():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = answer(message["method"])
            said = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
"""
