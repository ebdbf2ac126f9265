"""An MCP server on stdio as a plugin: its list, its results, its errors, in both revisions of the protocol."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from fumehood.v1 import tool_pb2
from fumehood_server.plugins.manifest import try_manifest

from tests.mcp.support import Caller, mcp_plugin, reason
from tests.plugins.support import manifest_of

REVISIONS = pytest.mark.parametrize("prefix", ["", "new_"], ids=["2025-11-25", "2026-07-28"])
LINK = "application/vnd.modelcontextprotocol.resource-link+json"


async def test_every_page_of_tools_is_listed_with_levels_by_their_annotations(caller: Caller) -> None:
    tools = await caller.tools()
    levels = {name: tool_pb2.SideEffects.Name(tool.definition.side_effects) for name, tool in tools.items()}
    assert len(tools) == 32
    assert levels["read_file"] == "SIDE_EFFECTS_READ"
    assert levels["write_file"] == "SIDE_EFFECTS_WRITE"
    assert levels["environment"] == "SIDE_EFFECTS_EXTERNAL", "who says nothing may do anything"
    assert tools["read_file"].definition.title == "Read a file"
    assert [*tools["write_file"].definition.claims] == [
        "readOnlyHint: false",
        "destructiveHint: true",
        "idempotentHint: true",
        "openWorldHint: false",
    ]
    assert not any(tool.definition.idempotent for tool in tools.values()), "a hint, which counts for nothing"
    reasons = {name: [each.message for each in tool.availability.reasons] for name, tool in tools.items()}
    assert not any(reasons.values()), reasons


@REVISIONS
async def test_structured_content_becomes_details(caller: Caller, prefix: str) -> None:
    result = await caller.call(f"{prefix}echo", text="ünï\n")
    assert json.loads(result.details_json) == {"text": "ünï\n"}
    assert [block.text for block in result.content] == ["ünï\n"]


@REVISIONS
async def test_content_of_each_type_becomes_a_block(caller: Caller, prefix: str) -> None:
    result = await caller.call(f"{prefix}blocks")
    assert [(each.text, each.blob.data, each.blob.media_type, each.resource_uri) for each in result.content] == [
        ("a text", b"", "", ""),
        ("", b"hi", "image/png", ""),
        ("", b"ho", "audio/wav", ""),
        ("", b'{"type":"resource_link","uri":"file:///a","name":"a"}', LINK, "file:///a"),
        ("b", b"", "", "file:///b"),
        ("", b"c", "application/x", "file:///c"),
    ]
    assert [each.text_media_type for each in result.content] == ["", "", "", "", "text/plain", ""]
    assert not any(each.HasField("annotations") for each in result.content), "nothing was said"


@REVISIONS
@pytest.mark.parametrize(("how", "expected"), [("tool", "tool_error"), ("malformed", "invalid_result")])
async def test_failures_are_typed(caller: Caller, prefix: str, how: str, expected: str) -> None:
    result = await caller.call(f"{prefix}fail", how=how)
    assert reason(result) == expected
    assert result.error.code == "TOOL_EXECUTION_FAILED"


@REVISIONS
async def test_rpc_errors_are_typed(caller: Caller, prefix: str) -> None:
    result = await caller.call(f"{prefix}ask_client", method="no/such")
    if prefix:
        assert reason(result) == "input_refused"
    else:
        assert json.loads(result.content[0].text)["error"]["code"] == -32601


@REVISIONS
async def test_many_calls_are_under_way_at_a_time_and_matched_by_id(caller: Caller, prefix: str) -> None:
    texts = [f"{number} " * number for number in range(100)]
    results = await asyncio.gather(*(caller.text(f"{prefix}echo", text=text) for text in texts))
    assert results == texts


@REVISIONS
async def test_environment_has_the_manifests_values_and_granted_secrets_and_nothing_else(
    caller: Caller, prefix: str
) -> None:
    assert await caller.text(f"{prefix}environment", name="GREETING") == "hello"
    assert await caller.text(f"{prefix}environment", name="USER") == "(not set)"
    shown = await caller.text(f"{prefix}environment", name="TOKEN")
    assert shown == "[secret token]", "the value is there, and taken out of what is said"


def test_manifest_names_a_command_an_environment_and_secrets(tmp_path: Path) -> None:
    more = "timeout_s = 90\nlimits = { memory_bytes = 4294967296 }"
    folder = mcp_plugin(tmp_path / "one", more=more, environment={"A": '"b"', "KEY": '{ secret = "key" }'})
    manifest = manifest_of(folder)
    assert (manifest.environment, manifest.secrets) == ((("A", "b"),), (("KEY", "key"),))
    assert manifest.limits.memory_bytes == 4 * 1024**3


@pytest.mark.parametrize(
    ("command", "more", "problem"),
    [
        ('["npx", "-y", "server"]', "", "downloads what it runs"),
        ('["python", "server.py"]', 'entrypoint = "a:b"', "`entrypoint` is not for kind"),
        ('["python", "server.py"]', "[[tool]]\nname = 'a'", "[[tool]] is not for kind"),
        ('["python", "server.py"]', 'build = ["npm", "ci"]\ndependencies = ["a==1"]', "don't go together"),
    ],
)
def test_manifest_that_can_not_work_is_refused_with_a_reason(
    tmp_path: Path, command: str, more: str, problem: str
) -> None:
    folder = mcp_plugin(tmp_path / "one", command=command, more="" if "[[tool]]" in more else more)
    if "[[tool]]" in more:
        (folder / "plugin.toml").write_text((folder / "plugin.toml").read_text() + more)
    problems = try_manifest(folder).problems
    assert any(problem in str(each) for each in problems), problems
