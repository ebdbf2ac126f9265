"""`fumehood call --batch`: JSON Lines of calls as one `CallTools`, and the answers in their order."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.cli.json_output import error_json, result_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fumehood.v1 import tool_service_pb2 as pb

    from fumehood_server.cli.client import SidecarClient

MAX_BYTES = 64 * 1024 * 1024
"""Of the file: many times what one message of gRPC's may have."""

_KEYS = {"tool", "arguments", "call_id"}
_HINT = 'Write one object a line, such as {"tool": "roll_dice", "arguments": {"count": 2}}, and "call_id" if you want.'


def read_calls(source: str) -> Iterator[pb.CallToolRequest]:
    """The calls of a file, or of stdin where it is `-`. Empty lines are none.

    Raises:
        CommandError: a line is no call, or the file can't be read.
    """
    from fumehood.v1 import tool_service_pb2 as pb

    for number, line in enumerate(_read(source).splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _bad(f"line {number} of {source} is not JSON: {error}") from error
        if not isinstance(value, dict) or not isinstance(value.get("tool"), str) or not value.keys() <= _KEYS:
            raise _bad(f"line {number} of {source} is not a call")
        call_id = value.get("call_id", "")
        if not isinstance(call_id, str):
            raise _bad(f"line {number} of {source}: call_id is not a string")
        arguments = json.dumps(value.get("arguments", {}), ensure_ascii=False)
        yield pb.CallToolRequest(tool=value["tool"], arguments_json=arguments, call_id=call_id)


def run_batch(client: SidecarClient, calls: list[pb.CallToolRequest], *, as_json: bool) -> ExitStatus:
    """Make the calls and print each answer as it comes. Exit status 1 where one of them failed or was refused."""
    from fumehood_server.cli import output

    status = ExitStatus.OK
    for answer in client.call_tools(calls):
        shape = _answer_json(calls[answer.index], answer)
        failed = shape["error"] is not None
        if failed:
            status = ExitStatus.FAILED
        if as_json:
            output.print_json(shape, compact=True)
            continue
        output.say(
            output.Part(f"{answer.index + 1}. {shape['tool']} ", bold=True),
            output.Part("failed" if failed else "ok", fg="red" if failed else "green"),
            f": {shape['error']['message']}  [{shape['error']['code']}]" if failed else "",
        )
        for block in answer.result.content if not failed else ():
            if block.WhichOneof("block") == "text":
                output.write_content(block.text)
            else:
                named = f"{block.resource_uri}, " if block.resource_uri else ""
                output.note(f"({named}{block.blob.media_type}, {len(block.blob.data):,} bytes; --json prints it)")
    return status


def _answer_json(call: pb.CallToolRequest, answer: pb.BatchAnswer) -> dict[str, Any]:
    shape: dict[str, Any] = {"index": answer.index, "tool": call.tool, "error": None, "result": None}
    if answer.HasField("refused"):
        shape["error"] = error_json(answer.refused.error)
    else:
        shape["result"] = result_json(answer.result)
        shape["error"] = shape["result"]["error"]
    return shape


def _read(source: str) -> str:
    try:
        if source == "-":
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise _bad(f"{source} is larger than {MAX_BYTES:,} bytes")
        return raw.decode()
    except OSError as error:
        raise _bad(f"can't read {source}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _bad(f"{source} is not UTF-8") from error


def _bad(what: str) -> CommandError:
    return CommandError(what, _HINT, code="BAD_ARGUMENTS")
