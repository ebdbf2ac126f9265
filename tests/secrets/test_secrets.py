"""Secrets end to end: readable where they are granted, and found nowhere else."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fumehood.v1 import plugin_service_pb2
from fumehood.v1 import tool_service_pb2 as pb

from tests.rpc.support import BOUND_S, ToolClient, call, text_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin

from .keeper import CODE

pytestmark = pytest.mark.promise("S811")

VALUE = 's3cr3t/Käse+"quoted"=tail'
OTHER = "another-secret-value"
TOKEN_TOOLS = (
    *("length", "later", "length_alone", "later_alone", "both", "reveal", "fail", "crash", "look_around", "process"),
    *("greedy", "modest"),
)
OTHER_TOOLS = ("other", "process_of_other")


@dataclass
class Keeper(ToolClient):
    """The sidecar with the plugin, and the file that holds the secret."""

    file: Path

    async def log_lines(self, last: str) -> list[str]:
        """The plugin's log, once a line that holds `last` is in it."""
        request = plugin_service_pb2.TailPluginLogsRequest(name="keeper", lines=1000, follow=True)
        lines: list[str] = []
        async with asyncio.timeout(BOUND_S):
            async for line in self.plugins.TailPluginLogs(request):
                lines.append(f"{line.message} {line.fields_json}")
                if last in line.message:
                    return lines
        raise AssertionError("the log ended")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sidecar, Path]]:
    folder = tmp_path_factory.mktemp("keeper")
    file = folder / "token"
    file.write_text(VALUE + "\n")
    file.chmod(0o600)
    os.environ["FUMEHOOD_TEST_OTHER"] = OTHER
    grants = [f'[plugin.tools.{tool}]\nsecrets = ["TOKEN"]' for tool in TOKEN_TOOLS]
    grants += [f'[plugin.tools.{tool}]\nsecrets = ["OTHER"]' for tool in OTHER_TOOLS]
    secrets = f'[secrets.TOKEN]\nfile = "{file}"\n[secrets.OTHER]\nenv = "FUMEHOOD_TEST_OTHER"\n'
    plugin = write_plugin(folder / "plugin", "keeper", CODE)
    try:
        with running_sidecar([(plugin, "\n".join(grants))], more=secrets) as sidecar:
            yield sidecar, file
    finally:
        del os.environ["FUMEHOOD_TEST_OTHER"]


@pytest.fixture
async def keeper(served: tuple[Sidecar, Path]) -> AsyncIterator[Keeper]:
    sidecar, file = served
    async with sidecar.channel() as channel:
        yield Keeper(sidecar, channel, file)


def holds(text: str, value: str = VALUE) -> bool:
    """Whether the text holds the value, in a form that the redactor knows or any other that a test can think of."""
    basic = base64.b64encode(f"user:{value}".encode()).decode()
    forms = [
        value,
        quote(value, safe=""),
        json.dumps(value)[1:-1],
        repr(value)[1:-1],
        base64.b64encode(value.encode()).decode(),
    ]
    return any(form in text for form in (*forms, basic, value[:12], value[-12:]))


async def test_a_granted_secret_is_handed_out_to_sync_and_async_tools_and_to_no_other(keeper: Keeper) -> None:
    assert await keeper.details("length") == len(VALUE)
    assert await keeper.details("later") == len(VALUE)
    assert await keeper.details("both") == [len(VALUE)] * 6
    assert await keeper.details("modest") == "secret_refused"
    assert await keeper.details("other", name="OTHER") == str(len(OTHER))
    refused = await keeper.details("other", name="TOKEN")
    assert refused.startswith('refused: the secret "TOKEN" is not granted to this tool')


async def test_a_call_in_a_process_of_its_own_is_handed_it_too(keeper: Keeper) -> None:
    assert await keeper.details("length_alone") == [len(VALUE)] * 2
    assert await keeper.details("later_alone") == len(VALUE)
    lines = await keeper.log_lines("a word of")
    assert "a word of [secret TOKEN] alone" in lines[-1]


async def test_a_tool_that_asks_for_more_than_it_is_granted_is_unavailable(keeper: Keeper) -> None:
    reply = await keeper.tools.GetTool(pb.GetToolRequest(name="greedy"))
    (reason,) = reply.tool.availability.reasons
    assert (reason.code, reason.remedy) == ("secret_not_granted", 'secrets = ["OTHER"] in its [plugin.tools.greedy]')
    assert (await keeper.call("greedy")).error.code == "TOOL_UNAVAILABLE"
    assert (await keeper.tools.GetTool(pb.GetToolRequest(name="length"))).tool.availability.available


async def test_a_result_its_updates_and_the_log_never_hold_the_secret(keeper: Keeper) -> None:
    messages = [each async for each in keeper.tools.StreamTool(pb.StreamToolRequest(call=call("reveal")))]
    shown = "".join(map(str, messages))
    lines = await keeper.log_lines("split")
    lines = await keeper.log_lines("yyyy") if not any("yyyy" in line for line in lines) else lines
    everything = [shown, *lines, keeper.sidecar.stderr()]
    for text in everything:
        assert not holds(text)
        assert not holds(text.encode().decode("unicode_escape", "replace"))
    assert "content [secret TOKEN]" in text_of(messages[-1].finished)
    assert json.loads(messages[-1].finished.details_json)["plain"] == "[secret TOKEN]"
    assert "update plain [secret TOKEN]" in shown
    for start in ("log", "print"):
        for name in ("plain", "base64", "url"):
            assert any(line.startswith(f"{start} {name} [secret TOKEN]") for line in lines), (start, name, lines)
    assert any("split [secret TOKEN] over" in line for line in lines)
    (cut,) = (line for line in lines if line.startswith("yyyy"))
    assert VALUE[:3] not in cut


@pytest.mark.parametrize("meant", [True, False])
async def test_a_failure_never_holds_the_secret(keeper: Keeper, meant: bool) -> None:
    result = await keeper.call("fail", meant=meant)
    assert "no luck with [secret TOKEN]" in result.error.message
    assert not holds(str(result))
    assert not holds(result.error.details_json)
    if meant:
        assert json.loads(result.error.details_json)["used"] == "[secret TOKEN]"


async def test_the_last_words_of_a_process_never_hold_the_secret(keeper: Keeper) -> None:
    result = await keeper.call("crash")
    assert "dying of [secret TOKEN]" in result.error.message
    assert not holds(str(result))
    assert not holds(result.error.details_json)


async def test_the_process_was_not_started_with_the_secret(keeper: Keeper) -> None:
    seen = await keeper.details("look_around")
    assert "PWD=/" in seen["environ"]  # the control: it could be read
    assert not any(holds(text) or "[secret" in text for text in seen.values())
    reply = await keeper.plugins.GetPlugin(plugin_service_pb2.GetPluginRequest(name="keeper"))
    pids = [worker.process_id for worker in reply.plugin.workers if worker.process_id]
    assert pids
    for pid in pids:
        for name in ("environ", "cmdline"):
            assert not holds(Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace"))
    assert VALUE not in str(reply)
    assert {secret for sandbox in reply.plugin.sandboxes for secret in sandbox.secrets} == {"TOKEN", "OTHER"}


async def test_tools_with_different_secrets_never_share_a_process(keeper: Keeper) -> None:
    first = await keeper.details("process")
    assert await keeper.details("process") == first + 1  # the control: one process serves both calls
    assert await keeper.details("process_of_other") == 1


async def test_a_secret_that_was_changed_is_handed_out_as_it_is_now(keeper: Keeper) -> None:
    keeper.file.write_text("a-new-value-of-another-length")
    try:
        assert await keeper.details("length") == len("a-new-value-of-another-length")
    finally:
        keeper.file.write_text(VALUE + "\n")
    assert await keeper.details("length") == len(VALUE)


@pytest.mark.parametrize(
    ("spoil", "code", "said"),
    [
        (lambda file: file.rename(file.with_suffix(".away")), "secret_missing", "can't be read"),
        (lambda file: file.chmod(0o644), "secret_unusable", "its mode is 0644"),
        (lambda file: file.write_text("short\n"), "secret_unusable", "too few"),
        (lambda file: file.write_text("x" * 70_000), "secret_unusable", "at most 65536"),
    ],
)
async def test_a_secret_that_cannot_be_had_makes_its_tools_unavailable(
    keeper: Keeper, spoil: Any, code: str, said: str
) -> None:
    spoil(keeper.file)
    try:
        reply = await keeper.tools.GetTool(pb.GetToolRequest(name="length"))
        result = await keeper.call("length")
        others = await keeper.tools.GetTool(pb.GetToolRequest(name="other"))
    finally:
        away = keeper.file.with_suffix(".away")
        if away.exists():
            away.rename(keeper.file)
        keeper.file.write_text(VALUE + "\n")
        keeper.file.chmod(0o600)
    (reason,) = reply.tool.availability.reasons
    assert reason.code == code
    assert said in reason.message
    assert reason.remedy
    assert others.tool.availability.available
    # A listed tool may be tried: the refusal reaches the tool, and by it the caller.
    assert json.loads(result.error.details_json)["reason"] == "secret_refused"
    assert said in result.error.message
    assert await keeper.details("length") == len(VALUE)
