"""`fumehood mcp`: a client of the official SDK, in both eras of the protocol, against a real sidecar."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from mcp.shared.exceptions import MCPError
from mcp.types import AudioContent, EmbeddedResource, ImageContent, TextContent

from tests.sidecar import Sidecar

from .support import LEGACY, MODERN, MODES, error_of, names, stdio_client, text_of

ALL = ["add", "count", "fail", "note", "say", "show", "wait"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_lists_and_calls_the_sidecars_tools(sidecar: Sidecar, mode: str) -> None:
    async with stdio_client(sidecar.target, mode) as client:
        assert client.protocol_version == ("2025-11-25" if mode == LEGACY else MODERN)
        assert await names(client) == ALL
        listed = {each.name: each for each in (await client.list_tools()).tools}
        assert listed["note"].annotations is not None
        assert listed["note"].annotations.read_only_hint is False
        assert listed["add"].output_schema is not None
        said = await client.call_tool("say", {"text": "größer"})
        assert (text_of(said), said.is_error) == ("größer", False)
        assert (await client.call_tool("add", {"first": 2**60, "second": 1})).structured_content == {"total": 2**60 + 1}

        failed = error_of(await client.call_tool("fail", {}))
        assert (failed["code"], failed["category"]) == ("TOOL_EXECUTION_FAILED", "tool")
        wrong = error_of(await client.call_tool("add", {"first": "x", "second": 1}))
        assert wrong["details"]["reason"] == "invalid_arguments"
        with pytest.raises(MCPError, match="Unknown tool: ad") as unknown:
            await client.call_tool("ad", {})
        assert unknown.value.code == -32602

        words, image, sound, text, thing = (await client.call_tool("show", {})).content
        assert isinstance(words, TextContent)
        assert isinstance(image, ImageContent)
        assert (image.mime_type, image.data) == ("image/png", "iVBORw==")
        assert isinstance(sound, AudioContent)
        assert isinstance(text, EmbeddedResource)
        assert isinstance(thing, EmbeddedResource)
        assert text.resource.model_dump(exclude_none=True)["text"] == "größer"
        assert thing.resource.model_dump(exclude_none=True)["blob"] == "AAE="


async def test_options_narrow_what_is_offered_and_called(sidecar: Sidecar) -> None:
    narrowed = ("--tools", "s*", "--tools", "note", "--max-level", "read")
    async with stdio_client(sidecar.target, MODERN, *narrowed) as client:
        assert await names(client) == ["say", "show"]
        assert text_of(await client.call_tool("say", {"text": "yes"})) == "yes"
        for hidden in ("note", "add"):
            with pytest.raises(MCPError, match=f"Unknown tool: {hidden}"):
                await client.call_tool(hidden, {})


def test_it_ends_when_its_client_closes_stdin_and_says_so_where_no_sidecar_is(sidecar: Sidecar) -> None:
    def run(target: str) -> tuple[dict[str, object], str]:
        lines = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
             "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "say", "arguments": {"text": "x"}}},
        ]  # fmt: skip
        command = [sys.executable, "-P", "-m", "fumehood_server", "mcp", "--address", target]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with subprocess.Popen(command, **pipes) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdin.write("".join(json.dumps(each) + "\n" for each in lines).encode())
            process.stdin.flush()
            answers = [json.loads(process.stdout.readline()) for _ in range(2)]
            process.stdin.close()
            assert process.wait(60) == 0
            return answers[1], process.stderr.read().decode()

    answer, told = run(sidecar.target)
    assert ("result" in answer, told) == (True, "")
    answer, told = run(f"unix:{sidecar.folder}/nothing")
    away = answer["error"]
    assert isinstance(away, dict)
    assert away["data"] == {"code": "UNREACHABLE", "retryable": True}
    assert away["message"].startswith("the sidecar can't be reached: start it with `fumehood serve`")
    assert told.startswith("fumehood: the sidecar can't be reached: start it with `fumehood serve`")
