"""Plugins that an operator takes out of service and puts back, while the real sidecar serves."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import approval_service_pb2 as approval_pb
from fumehood.v1 import plugin_service_pb2 as pb
from fumehood.v1 import tool_service_pb2 as tool_pb
from fumehood.v1.approval_service_pb2_grpc import ApprovalServiceStub
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.errors import ConfigError
from fumehood_server.plugins.disabled import DisabledPlugins

from tests.journal.reading import Recorded, data
from tests.rpc.support import BOUND_S, call, refused, text_of
from tests.sidecar import running_sidecar, write_plugin

CODE = """
import time
from fumehood_sdk import Context, Plugin

plugin = Plugin("{name}", version="1.0.0")


@plugin.tool(side_effects="none", isolation="{isolation}")
def {name}(seconds: float = 0, ctx: Context = None) -> str:
    \"\"\"Takes its time.\"\"\"
    ctx.update("begun")
    time.sleep(seconds)
    return "done"
"""
APPROVED = '[plugin.tools.warm]\npermission = "require_approval"'


class House:
    """A sidecar with a plugin of each isolation, and one beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recorded = Recorded(folder)
        self.plugins = [
            write_plugin(folder / name, name, CODE.format(name=name, isolation=isolation))
            for name, isolation in (("warm", "process"), ("fresh", "call"), ("other", "call"))
        ]

    def sidecar(self, warm: str = "") -> Any:
        return running_sidecar([(self.plugins[0], warm), *self.plugins[1:]], at=self.folder)


@pytest.fixture
def house() -> Iterator[House]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        yield House(Path(name))


class Client:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.tools: Any = ToolServiceStub(channel)
        self.plugins: Any = PluginServiceStub(channel)
        self.approvals: Any = ApprovalServiceStub(channel)

    async def disable(self, name: str, **fields: Any) -> Any:
        return await self.plugins.DisablePlugin(pb.DisablePluginRequest(name=name, **fields))

    async def enable(self, name: str) -> Any:
        return (await self.plugins.EnablePlugin(pb.EnablePluginRequest(name=name))).plugin

    async def call(self, name: str, **arguments: Any) -> Any:
        return (await self.tools.CallTool(call(name, arguments), timeout=BOUND_S)).result

    async def begun(self, name: str, seconds: float) -> asyncio.Task[Any]:
        """The result of a call that has begun."""
        stream = self.tools.StreamTool(tool_pb.StreamToolRequest(call=call(name, {"seconds": seconds})))
        async for event in stream:
            if event.HasField("update"):
                break

        async def finished() -> Any:
            return [each.finished async for each in stream][-1]

        return asyncio.create_task(finished())


async def test_a_disabled_plugin_runs_nothing_until_it_is_enabled_over_reloads_and_restarts(house: House) -> None:
    with house.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            client = Client(channel)
            under_way = await client.begun("fresh", 0.5)
            for name in ("warm", "fresh"):
                assert text_of(await client.call(name)) == "done", "control"
                plugin = (await client.disable(name, reason="sends\x1b[2J twice")).plugin
                assert plugin.state == pb.PLUGIN_STATE_UNAVAILABLE
                await _is_disabled(client, name)
            assert text_of(await under_way) == "done", "what had begun was let finish"
            assert text_of(await client.call("other")) == "done", "control"
            await client.plugins.ReloadPlugin(pb.ReloadPluginRequest(name="warm"))
            await client.plugins.ReloadConfig(pb.ReloadConfigRequest())
            await _is_disabled(client, "warm")
        sidecar.signal()
        sidecar.wait()
    with house.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            client = Client(channel)
            for name in ("warm", "fresh"):
                await _is_disabled(client, name)
                assert (await client.enable(name)).state == pb.PLUGIN_STATE_SERVING
                assert text_of(await client.call(name)) == "done"
            assert (await client.enable("warm")).state == pb.PLUGIN_STATE_SERVING, "it was already"
            assert await refused(client.disable("nobody")) == (grpc.StatusCode.NOT_FOUND, "PLUGIN_NOT_FOUND")
            too_long = client.disable("warm", reason="x" * 1025)
            assert await refused(too_long) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")
            assert text_of(await client.call("warm")) == "done"
    disabled = data(house.recorded.events("plugin_disabled"), "plugin_disabled")
    assert [(each["reason"], each["authenticated_by"]) for each in disabled] == [
        ("sends\\x1b[2J twice", "unix_socket")
    ] * 2
    assert len(house.recorded.events("plugin_enabled")) == 3


async def _is_disabled(client: Client, name: str) -> None:
    result = await client.call(name)
    assert result.error.code == "TOOL_UNAVAILABLE"
    assert "sends\\x1b[2J twice" in result.error.message
    (reason,) = json.loads(result.error.details_json)["reasons"]
    assert reason["code"] == "disabled"
    listed = (await client.tools.ListTools(tool_pb.ListToolsRequest())).tools
    assert name not in [each.definition.name for each in listed]
    shown = (await client.plugins.GetPlugin(pb.GetPluginRequest(name=name))).plugin
    assert [each.code for each in shown.reasons] == ["disabled"]


async def test_calls_are_cancelled_with_their_plugin_where_that_is_said(house: House) -> None:
    with house.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            client = Client(channel)
            tasks = [await client.begun(name, 3600) for name in ("warm", "fresh")]
            control = await client.begun("other", 0.5)
            for name in ("warm", "fresh"):
                assert (await client.disable(name, reason="at once", cancel_calls=True)).cancelled_calls == 1
            for task in tasks:
                assert (await task).error.code == "CANCELLED_SIGNAL"
            assert text_of(await control) == "done"


async def test_a_call_that_was_admitted_before_gets_no_process_afterwards(house: House) -> None:
    with house.sidecar(warm=APPROVED) as sidecar:
        async with sidecar.channel() as channel:
            client = Client(channel)
            waiting = [asyncio.create_task(client.call("warm")) for _ in range(2)]
            stream = client.approvals.WatchApprovals(approval_pb.WatchApprovalsRequest(), timeout=BOUND_S)
            pending = []
            async for each in stream:
                if each.HasField("approval"):
                    pending.append(each.approval)
                if len(pending) == 2:
                    break

            async def approve(approval: approval_pb.Approval) -> None:
                request = approval_pb.DecideApprovalRequest(
                    approval_id=approval.approval_id,
                    choice=approval_pb.APPROVAL_CHOICE_APPROVE,
                    digest=approval.digest,
                )
                await client.approvals.DecideApproval(request)

            await approve(pending[0])
            (done, *_), _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert text_of(done.result()) == "done", "control"
            await client.disable("warm")
            await approve(pending[1])
            (last,) = [await each for each in waiting if each is not done]
            assert last.error.code == "TOOL_UNAVAILABLE"


async def test_what_a_restart_would_not_know_holds_all_the_same_and_is_told(house: House) -> None:
    with house.sidecar() as sidecar:
        async with sidecar.channel() as channel:
            client = Client(channel)
            path = house.folder / ".fumehood" / "disabled.json"
            path.mkdir()  # so that nothing can be put in its place
            answer = await refused(client.disable("warm"))
            assert answer == (grpc.StatusCode.FAILED_PRECONDITION, "STATE_UNWRITABLE")
            assert (await client.call("warm")).error.code == "TOOL_UNAVAILABLE"
            path.rmdir()
            await client.disable("warm")
            assert list(json.loads(path.read_text())["plugins"]) == ["warm"]


TEXTS = ("", "{}", '{"version": 2}', '{"version": 1, "plugins": {"warm": {}}}', "[" * 100_000)


def test_a_file_that_does_not_say_what_is_disabled_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "disabled.json"
    disabled = DisabledPlugins(path)
    disabled.read()
    assert disabled.find("warm") is None, "control: no file"
    for text in TEXTS:
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"disabled\.json"):
            disabled.read()


def test_nothing_is_served_while_it_can_not_be_told_what_is_disabled(house: House) -> None:
    state = house.folder / ".fumehood"
    state.mkdir(mode=0o700)
    (state / "disabled.json").write_text("")
    with pytest.raises(AssertionError, match=r"disabled\.json"), house.sidecar():
        pass
