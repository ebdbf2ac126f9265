"""Requests that a client cancels: the call behind each is cancelled, and the connection and session serve on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import grpc
import grpc.aio
import pytest
from fumehood.v1 import approval_service_pb2 as approval_pb
from fumehood.v1 import mcp_service_pb2 as mcp_pb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.sidecar_link import SidecarLink
from mcp import Client
from mcp.types import ElicitResult

from tests.journal.reading import Recorded, data
from tests.sidecar import Sidecar, running_sidecar

from .support import LEGACY, MODES, http_client, stdio_client, text_of, url_of

SERVER = '''
import json, sys

READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}
TOOLS = [
    {"name": name, "description": name, "inputSchema": {"type": "object"}, "annotations": READ_ONLY}
    for name in ("hello", "stay", "ask")
]
ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
        "serverInfo": {"name": "staying", "version": "1"},
    },
    "tools/list": {"tools": TOOLS},
    "hello": {"content": [{"type": "text", "text": "hello"}]},
}
"""Nothing else is answered before it is cancelled."""
QUESTION = {"message": "Which colour?", "requestedSchema": {"type": "object", "properties": {"it": {"type": "string"}}}}


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        method = message["method"]
        found = message["params"]["name"] if method == "tools/call" else method
        if found == "ask":
            send(id=f"ask {message['id']}", method="elicitation/create", params=QUESTION)
        elif found in ANSWERS:
            send(id=message["id"], result=ANSWERS[found])
    elif message.get("method") == "notifications/cancelled":  # which spares the sidecar the wait for it
        send(id=message["params"]["requestId"], error={"code": -32800, "message": "cancelled"})
'''
MANIFEST = '[plugin]\nname = "staying"\nversion = "1.0.0"\nkind = "mcp"\ncommand = ["python", "server.py"]\n'
TABLE = '[mcp]\nlisten = "127.0.0.1:0"\nallow_anonymous = true\n'


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("staying")
    (folder / "plugin.toml").write_text(MANIFEST)
    (folder / "server.py").write_text(SERVER)
    with running_sidecar([folder], more=TABLE) as running:
        running.logged(event="mcp_serving")
        yield running


def connected(sidecar: Sidecar, transport: str, mode: str, **options: Any) -> AbstractAsyncContextManager[Client]:
    if transport == "http":
        return http_client(url_of(sidecar), mode, **options)
    return stdio_client(sidecar.target, mode, **options)


REQUESTS: dict[str, Callable[[Client, Any], Awaitable[object]]] = {
    "call": lambda client, meta: client.call_tool("stay", {}, meta=meta),
    "call-with-an-argument": lambda client, meta: client.call_tool("stay", {"a": 1}, meta=meta),
    "list": lambda client, meta: client.list_resources(meta=meta, cache_mode="bypass"),
    "reading": lambda client, meta: client.read_resource("fumehood://staying/it:1", meta=meta, cache_mode="bypass"),
    "prompt": lambda client, meta: client.get_prompt("staying/it", meta=meta),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_cancelled_request_ends_its_call_and_nothing_else(sidecar: Sidecar, transport: str, mode: str) -> None:
    """Without a progress token and a log level: such a call is one unary request to the sidecar."""
    journal = Recorded(sidecar.folder)
    async with connected(sidecar, transport, mode) as client:
        beside = await begun(journal, client, "call", f"{transport}-{mode}-beside")
        for kind in REQUESTS:
            call_id = f"{transport}-{mode}-{kind}"
            await cancelled(await begun(journal, client, kind, call_id))
            assert await end_of(journal, call_id) == "caller", kind
            assert text_of(await client.call_tool("hello", {})) == "hello", kind
        assert not beside.done()
        await cancelled(beside)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_call_is_cancelled_while_its_question_is_open(sidecar: Sidecar, transport: str) -> None:
    asked = asyncio.Event()

    async def silent(_context: object, _params: object) -> ElicitResult:
        asked.set()
        await asyncio.sleep(3600)
        raise AssertionError

    journal, call_id = Recorded(sidecar.folder), f"{transport}-question"
    async with connected(sidecar, transport, LEGACY, elicitation_callback=silent) as client:
        call = asyncio.create_task(client.call_tool("ask", {}, meta={"fumehood/callId": call_id}))  # type: ignore[typeddict-unknown-key]
        await asked.wait()
        await cancelled(call)
        assert await end_of(journal, call_id) == "caller"
        assert text_of(await client.call_tool("hello", {})) == "hello"


async def begun(journal: Recorded, client: Client, kind: str, call_id: str) -> asyncio.Task[object]:
    """A request whose call is recorded as under way."""
    request = asyncio.ensure_future(REQUESTS[kind](client, {"fumehood/callId": call_id}))
    assert isinstance(request, asyncio.Task)
    await journal.call_until(call_id, "execute_start")
    return request


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel it, which the SDK tells the server, and wait for its end."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def end_of(journal: Recorded, call_id: str) -> object:
    """On whose word a call was cancelled."""
    (end,) = data(await journal.call_until(call_id, "execute_cancelled"), "execute_cancelled")
    return end["reason"]


class Silent(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types of it
    """Answers nothing, and notes whose requests were cancelled."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.cancelled: list[str] = []

    def service(self, details: Any) -> Any:
        method = details.method.rpartition("/")[2]

        async def wait(_request: bytes, _context: Any) -> bytes:
            self.asked.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.cancelled.append(method)
                raise
            raise AssertionError

        async def stream(request: bytes, context: Any) -> Any:
            yield await wait(request, context)

        if method == "StreamTool":
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(wait)


async def test_each_request_to_the_sidecar_is_cancelled_with_the_scope_that_it_is_in(tmp_path: Path) -> None:
    """A scope that didn't know its own cancellation would end the group around it, with all others in it."""
    silent, caller = Silent(), McpCaller("token")
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((silent,))
    server.add_insecure_port(f"unix:{tmp_path}/s")
    await server.start()
    try:
        async with SidecarLink(f"unix:{tmp_path}/s") as link:

            async def stream() -> None:
                async for _ in link.stream_tool(pb.CallToolRequest(), caller):
                    raise AssertionError

            requests: dict[str, Callable[[], Awaitable[object]]] = {
                "ListTools": lambda: link.list_tools(pb.ListToolsRequest(), caller),
                "CheckAvailability": lambda: link.check(caller),
                "CallTool": lambda: link.call_tool(pb.CallToolRequest(), caller),
                "StreamTool": stream,
                "AnswerQuestion": lambda: link.answer_question(pb.AnswerQuestionRequest(), caller),
                "CancelCall": lambda: link.cancel_call("a", caller),
                "ListMcpServers": lambda: link.mcp_servers(caller),
                "GetPrompt": lambda: link.read(link.readings.GetPrompt, mcp_pb.GetPromptRequest(), caller),
                "ListApprovals": lambda: link.approval("a", caller),
                "DecideApproval": lambda: link.decide(approval_pb.DecideApprovalRequest(), caller),
            }
            outlived: list[str] = []

            async def in_a_scope(name: str, scope: anyio.CancelScope) -> None:
                with scope:
                    await requests[name]()
                outlived.append(name)

            for name in requests:
                silent.asked.clear()
                async with anyio.create_task_group() as group:
                    scope = anyio.CancelScope()
                    group.start_soon(in_a_scope, name, scope)
                    await silent.asked.wait()
                    scope.cancel()
            assert outlived == list(requests)
            async with asyncio.timeout(60):
                while len(silent.cancelled) < len(requests):  # noqa: ASYNC110 - the other end of a socket
                    await asyncio.sleep(0.01)
            assert silent.cancelled == list(requests)
    finally:
        await server.stop(None)
