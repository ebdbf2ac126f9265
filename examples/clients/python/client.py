"""A client of Fumehood in Python: lists tools, calls one, streams one, and meets every kind of failure.

    pip install './protos[grpc]' grpcio-status          # from the top of the repository
    python client.py unix:.fumehood/fumehood.sock       # or: FUMEHOOD_ADDRESS=127.0.0.1:7332 python client.py

It expects a sidecar with the plugins of `examples/plugins/dice` and `text`, and exits with status 1 if anything is not
as docs/protocol.md, part 2, says.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

import grpc
from fumehood.v1 import error_pb2, tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as rpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

if TYPE_CHECKING:
    from fumehood.v1.tool_service_pb2_grpc import ToolServiceAsyncStub as Stub  # what ToolServiceStub makes here

DEFAULT_ADDRESS = "unix:.fumehood/fumehood.sock"
DEADLINE_S = 30.0  # for calls that are expected to be quick; covers the start of a worker. Never call without one.
SHORT_S = 0.3  # for calls that are meant to run out of time
SESSION_CALLS = 20
DOMAIN = "fumehood"


class ToolError(Exception):
    """The tool was called, or could not be, and the answer is a failure. Switch on `code`, never on the message."""

    def __init__(self, error: error_pb2.SystemError) -> None:
        super().__init__(error.message)
        self.code = error.code
        self.category = error.category
        self.retryable = error.retryable
        self.details = json.loads(error.details_json or "{}")


class SurpriseError(Exception):
    """The sidecar did something else than this program expects."""


def call_request(
    tool: str, arguments: Mapping[str, object], call_id: str = "", timeout_s: float | None = None
) -> pb.CallToolRequest:
    """Arguments travel as JSON text: a protobuf Struct would turn each integer into a double."""
    request = pb.CallToolRequest(tool=tool, arguments_json=json.dumps(dict(arguments)), call_id=call_id)
    if timeout_s is not None:
        request.timeout.CopyFrom(Duration(nanos=round(timeout_s * 1e9)))
    return request


async def call(stub: Stub, request: pb.CallToolRequest) -> tool_pb2.ToolResult:
    """One call, its failure as an exception: `ToolError` from the call itself, `AioRpcError` from the way there."""
    response = await stub.CallTool(request, timeout=DEADLINE_S)
    if response.result.is_error:
        raise ToolError(response.result.error)
    return response.result


def error_info(error: grpc.aio.AioRpcError) -> ErrorInfo | None:
    """The machine-readable reason of a status, which is in its details. None: gRPC itself made the status."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type] # grpc-stubs know synchronous calls alone
    for detail in status.details if status else ():
        info = ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            return info
    return None


async def list_tools(stub: Stub) -> None:
    """Page by page: a sidecar may have a thousand tools, and a message has a size limit."""
    names, page_token = [], ""
    while True:
        page = await stub.ListTools(pb.ListToolsRequest(page_size=2, page_token=page_token), timeout=DEADLINE_S)
        # For a model, hand over each definition's name, description and input_schema_json.
        names += [tool.definition.name for tool in page.tools]
        page_token = page.next_page_token
        if not page_token:
            break
    print(f"tools: {', '.join(names)}")
    expect({"roll_dice", "slow_count"} <= set(names), "the plugins dice and text are needed")


async def call_tool(stub: Stub) -> None:
    """One call, and what it says of the sandbox that it ran in."""
    result = await call(stub, call_request("roll_dice", {"count": 2, "sides": 6}))
    roll = json.loads(result.details_json)
    layers = ", ".join(layer.name for layer in result.sandbox.layers)
    print(f"roll_dice: {roll['rolls']} makes {roll['total']}, behind {layers}")
    expect(len(roll["rolls"]) == 2 and sum(roll["rolls"]) == roll["total"], f"a roll of two dice, not {roll}")  # noqa: PLR2004


async def stream_tool(stub: Stub) -> None:
    """The same as a stream: started, updates, finished."""
    request = pb.StreamToolRequest(call=call_request("slow_count", {"upto": 3, "delay_ms": 20}))
    updates, finished = 0, None
    async for response in stub.StreamTool(request, timeout=DEADLINE_S):
        match response.WhichOneof("event"):
            case "started":
                print("slow_count: started")
            case "update":
                updates += 1
                print(
                    f"slow_count: {response.update.message} ({response.update.progress:g} of {response.update.total:g})"
                )
            case "finished":
                finished = response.finished
            case _:
                pass  # a newer sidecar says more
    expect(finished is not None and not finished.is_error, "the stream ends with a result")
    expect(updates == 3, f"three updates, not {updates}")  # noqa: PLR2004
    print(f"slow_count: finished, {finished.details_json if finished else ''}")


async def run_out_of_time(stub: Stub) -> None:
    """Two bounds. `timeout` of the request is answered with a result; gRPC's deadline cuts the call off."""
    slow = {"upto": 100, "delay_ms": 100}
    try:
        await call(stub, call_request("slow_count", slow, timeout_s=SHORT_S))
    except ToolError as error:
        expect(error.code == "TOOL_TIMEOUT" and error.retryable, f"TOOL_TIMEOUT, not {error.code}")
        print(f"timeout: {error.code} by the {error.details['bound']} after {error.details['value']} s")
    else:
        raise SurpriseError("a call outlived its timeout")

    try:
        response = await stub.CallTool(call_request("slow_count", slow), timeout=SHORT_S)
    except grpc.aio.AioRpcError as error:
        expect(error.code() is grpc.StatusCode.DEADLINE_EXCEEDED, f"DEADLINE_EXCEEDED, not {error.code()}")
        print(f"deadline: {error.code().name}")
    else:
        # The sidecar watches the same deadline. Now and then its answer is here before our own clock has noticed.
        code = response.result.error.code
        expect(code == "CANCELLED_TIMEOUT", f"a call outlived its deadline: {code or 'no error'}")
        print(f"deadline: {code}")


async def read_errors(stub: Stub) -> None:
    """Failures of the call come in its result, for the model to mend; refused requests as a gRPC status."""
    try:
        await call(stub, call_request("roll_dice", {"count": 11, "sides": 7}))
    except ToolError as error:
        expect(error.code == "TOOL_EXECUTION_FAILED", error.code)
        expect(error.details["reason"] == "invalid_arguments", str(error.details))
        print(f"bad arguments: {error.code}, {error.details['reason']}")
        for argument in error.details["arguments"]:
            print(f"  {argument['pointer']}: {argument['message']} ({argument['rule']})")
        expect([a["pointer"] for a in error.details["arguments"]] == ["/count", "/sides"], str(error.details))
    else:
        raise SurpriseError("bad arguments were taken")

    try:
        await call(stub, call_request("roll_dise", {}))
    except ToolError as error:
        expect(error.code == "TOOL_NOT_FOUND" and not error.retryable, error.code)
        print(f"unknown tool: {error.code}: {error}")
    else:
        raise SurpriseError("an unknown tool was found")

    try:
        await call(stub, call_request("", {}))
    except grpc.aio.AioRpcError as error:
        info = error_info(error)
        expect(error.code() is grpc.StatusCode.INVALID_ARGUMENT, str(error.code()))
        expect(info is not None and info.reason == "REQUEST_INVALID", str(info))
        print(f"bad request: {error.code().name}, {info.reason if info else ''}: {error.details()}")
    else:
        raise SurpriseError("a request without a tool was taken")


async def use_session(stub: Stub) -> None:
    """Many calls over one stream, told apart by their ids, answered in any order."""
    cancelled_id, refused_id = "count-to-cancel", "names-no-tool"
    waiting = {f"roll-{number}" for number in range(SESSION_CALLS)} | {cancelled_id, refused_id}
    finished = refused = cancelled = 0

    async def requests() -> AsyncIterator[pb.SessionRequest]:
        yield pb.SessionRequest(
            call=call_request("slow_count", {"upto": 1000, "delay_ms": 20}, cancelled_id), updates=True
        )
        yield pb.SessionRequest(call=call_request("", {}, refused_id))
        for number in range(SESSION_CALLS):
            yield pb.SessionRequest(call=call_request("roll_dice", {"count": 1, "sides": 20}, f"roll-{number}"))
        # The end of this iterator half-closes the stream: calls under way finish, then the responses end too.

    # gRPC draws on the iterator while the loop below reads. A client that only writes would fill both buffers and stop.
    async for response in stub.Session(requests(), timeout=DEADLINE_S):
        match response.WhichOneof("event"):
            case "update":
                # It runs, so it can be cancelled: once. NOT_FOUND would mean that it has just ended.
                if response.update.sequence == 1:
                    await stub.CancelCall(
                        pb.CancelCallRequest(call_id=response.update.call_id, reason="seen enough"),
                        timeout=DEADLINE_S,
                    )
            case "finished":
                result = response.finished
                waiting.remove(result.call_id)
                if result.call_id == cancelled_id:
                    expect(result.error.code == "CANCELLED_SIGNAL", f"CANCELLED_SIGNAL, not {result.error.code}")
                    cancelled += 1
                else:
                    expect(not result.is_error, result.error.message)
                    finished += 1
            case "refused":
                refusal = response.refused
                waiting.remove(refusal.call_id)
                expect(refusal.call_id == refused_id, f"{refusal.call_id} was refused: {refusal.error.message}")
                expect(refusal.status_code == grpc.StatusCode.INVALID_ARGUMENT.value[0], str(refusal.status_code))
                expect(refusal.error.code == "REQUEST_INVALID", refusal.error.code)
                refused += 1
            case _:
                pass
    expect(not waiting, f"never answered: {waiting}")
    print(
        f"session: {finished} finished, {refused} refused (REQUEST_INVALID), {cancelled} cancelled (CANCELLED_SIGNAL)"
    )


def expect(holds: bool, message: str) -> None:
    """Raise unless it holds."""
    if not holds:
        raise SurpriseError(message)


async def main(address: str) -> int:
    """Go through all of it over one channel, which is made once and shared."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Stub = rpc.ToolServiceStub(channel)
        try:
            for step in (list_tools, call_tool, stream_tool, run_out_of_time, read_errors, use_session):
                await step(stub)
        except SurpriseError as error:
            print(f"surprise: {error}", file=sys.stderr)
        except ToolError as error:
            print(f"surprise: {error.code}: {error}", file=sys.stderr)
        except grpc.aio.AioRpcError as error:
            print(f"surprise: {error.code().name}: {error.details()}", file=sys.stderr)
        else:
            print("all as expected")
            return 0
    return 1


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("FUMEHOOD_ADDRESS", DEFAULT_ADDRESS)
    sys.exit(asyncio.run(main(target)))
