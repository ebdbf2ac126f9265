from __future__ import annotations

import os
from pathlib import Path

import grpc
import pytest
from fumehood.v1 import plugin_service_pb2 as pb
from fumehood.v1 import plugin_service_pb2_grpc, tool_pb2, tool_service_pb2_grpc
from fumehood.v1 import tool_service_pb2 as tool_pb
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.rpc.support import BOUND_S, call, refused, text_of
from tests.sidecar import running_sidecar, write_plugin

SAYS = '''
from fumehood_sdk import Plugin

plugin = Plugin("says", version="1.0.0")

@plugin.tool(side_effects="none")
def say() -> str:
    """Says one word."""
    return "{word}"
'''


async def test_plugins_are_listed_in_short(plugins: PluginServiceStub) -> None:
    (plugin,) = (await plugins.ListPlugins(pb.ListPluginsRequest())).plugins
    assert (plugin.name, plugin.kind, plugin.state) == ("speech", "python", pb.PLUGIN_STATE_SERVING)
    assert plugin.tool_count == 9
    assert not plugin.tools


async def test_a_plugin_shows_the_sandbox_of_each_level(plugins: PluginServiceStub, tools: ToolServiceStub) -> None:
    await tools.CallTool(call("echo", {"text": "start a worker"}), timeout=BOUND_S)
    plugin = (await plugins.GetPlugin(pb.GetPluginRequest(name="speech"))).plugin
    assert len(plugin.tools) == 9
    (worker,) = (each for each in plugin.workers if each.state == "ready")
    assert worker.process_id > 0
    assert worker.calls_served > 0
    (sandbox,) = plugin.sandboxes
    assert sandbox.side_effects == tool_pb2.SIDE_EFFECTS_NONE
    assert str(plugin.path) not in sandbox.readable_paths
    assert any(path.endswith("/plugins/" + plugin.digest.replace(":", "-")) for path in sandbox.readable_paths)
    assert not sandbox.writable_paths
    assert sandbox.limits.memory_bytes > 0
    assert {"seccomp", "landlock"} <= {layer.name for layer in sandbox.receipt.layers}


async def test_a_folder_that_is_not_there_and_a_file_whose_name_is_no_text_refuse_their_plugins_alone(
    tmp_path: Path,
) -> None:
    """Names are bytes on Linux. Neither the log's JSON nor protobuf's text can hold all of them."""
    code = SAYS.format(word="well")
    good = write_plugin(tmp_path / "says", "says", code)
    bad = write_plugin(tmp_path / "strange", "strange", code.replace("says", "strange").replace("def say", "def hum"))
    name = os.fsencode(bad) + b"/\xff\x1b[2J"
    os.mkfifo(name)
    with running_sidecar([tmp_path / "missing", good, bad]) as sidecar:
        async with sidecar.channel() as channel:
            tools = tool_service_pb2_grpc.ToolServiceStub(channel)
            assert text_of((await tools.CallTool(call("say"), timeout=BOUND_S)).result) == "well"
            plugins = plugin_service_pb2_grpc.PluginServiceStub(channel)
            missing, says, strange = (await plugins.ListPlugins(pb.ListPluginsRequest())).plugins
            assert (missing.state, says.state) == (pb.PLUGIN_STATE_REFUSED, pb.PLUGIN_STATE_SERVING)
            assert missing.reasons
            assert strange.state == pb.PLUGIN_STATE_REFUSED
            assert "\\udcff\\x1b[2J: is a FIFO" in strange.reasons[0].message
            reload = pb.ReloadPluginRequest(name="strange")
            assert await refused(plugins.ReloadPlugin(reload)) == (
                grpc.StatusCode.FAILED_PRECONDITION,
                "RELOAD_REFUSED",
            )
            # The name alone is no reason to refuse anybody.
            os.unlink(name)  # noqa: PTH108 - pathlib takes no bytes
            Path(os.fsdecode(name)).touch()
            assert (await plugins.ReloadPlugin(reload)).plugin.state == pb.PLUGIN_STATE_SERVING


async def test_an_unknown_plugin_is_not_found(plugins: PluginServiceStub) -> None:
    not_found = (grpc.StatusCode.NOT_FOUND, "PLUGIN_NOT_FOUND")
    assert await refused(plugins.GetPlugin(pb.GetPluginRequest(name="no"))) == not_found
    assert await refused(plugins.ReloadPlugin(pb.ReloadPluginRequest(name="no"))) == not_found
    assert await refused(plugins.TailPluginLogs(pb.TailPluginLogsRequest(name="no")).read()) == not_found


async def test_the_log_is_followed(plugins: PluginServiceStub, tools: ToolServiceStub) -> None:
    tail = plugins.TailPluginLogs(pb.TailPluginLogsRequest(name="speech", lines=1000, follow=True), timeout=BOUND_S)

    async def until(word: str) -> pb.TailPluginLogsResponse:
        while True:
            line = await tail.read()
            if line.message == word:
                return line

    for word in ("first words", "last words"):
        await tools.CallTool(call("mutter", {"line": word}), timeout=BOUND_S)
        line = await until(word)
        assert line.source == "stderr"
        assert line.worker_id.startswith("speech-")
        assert line.time.seconds > 0
    tail.cancel()


async def test_the_log_ends_where_it_is_not_followed(plugins: PluginServiceStub, tools: ToolServiceStub) -> None:
    await tools.CallTool(call("mutter", {"line": "a line"}), timeout=BOUND_S)
    lines = [line async for line in plugins.TailPluginLogs(pb.TailPluginLogsRequest(name="speech", lines=1))]
    assert len(lines) == 1


async def test_too_many_lines_are_refused(plugins: PluginServiceStub) -> None:
    tail = plugins.TailPluginLogs(pb.TailPluginLogsRequest(name="speech", lines=1001))
    assert await refused(tail.read()) == (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID")


async def test_a_reload_serves_what_was_accepted_and_nothing_else(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "says", "says", SAYS.replace("{word}", "old"))
    with running_sidecar([folder]) as sidecar:
        async with sidecar.channel() as channel:
            tools = tool_service_pb2_grpc.ToolServiceStub(channel)
            plugins = plugin_service_pb2_grpc.PluginServiceStub(channel)
            assert text_of((await tools.CallTool(call("say"), timeout=BOUND_S)).result) == "old"
            write_plugin(folder, "says", SAYS.replace("{word}", "new"))
            reload = pb.ReloadPluginRequest(name="says")
            status = await refused(plugins.ReloadPlugin(reload, timeout=BOUND_S))
            assert status == (grpc.StatusCode.FAILED_PRECONDITION, "RELOAD_REFUSED")
            assert text_of((await tools.CallTool(call("say"), timeout=BOUND_S)).result) == "old"
            (sidecar.folder / "fumehood.lock").unlink()
            plugin = (await plugins.ReloadPlugin(reload, timeout=BOUND_S)).plugin
            assert plugin.state == pb.PLUGIN_STATE_SERVING
            assert text_of((await tools.CallTool(call("say"), timeout=BOUND_S)).result) == "new"


async def test_a_second_plugin_of_one_name_is_reloaded_by_its_folder_and_by_its_new_name(tmp_path: Path) -> None:
    first = write_plugin(tmp_path / "first", "says", SAYS)
    second = write_plugin(tmp_path / "second", "says", SAYS.replace("def say(", "def tell("))
    with running_sidecar([first, second]) as sidecar:
        async with sidecar.channel() as channel:
            plugins = plugin_service_pb2_grpc.PluginServiceStub(channel)
            tools = tool_service_pb2_grpc.ToolServiceStub(channel)
            listed = (await plugins.ListPlugins(pb.ListPluginsRequest())).plugins
            assert [(each.name, each.state) for each in listed] == [
                ("says", pb.PLUGIN_STATE_SERVING),
                ("says", pb.PLUGIN_STATE_REFUSED),
            ]
            by_folder = pb.ReloadPluginRequest(name=listed[1].path)
            status = await refused(plugins.ReloadPlugin(by_folder, timeout=BOUND_S))
            assert status == (grpc.StatusCode.FAILED_PRECONDITION, "RELOAD_REFUSED")
            for file in ("plugin.toml", "says.py"):
                path = second / file
                path.write_text(path.read_text().replace('"says"', '"tells"'))
            plugin = (await plugins.ReloadPlugin(pb.ReloadPluginRequest(name="tells"), timeout=BOUND_S)).plugin
            assert (plugin.name, plugin.state) == ("tells", pb.PLUGIN_STATE_SERVING)
            for tool in ("say", "tell"):
                assert not (await tools.CallTool(call(tool), timeout=BOUND_S)).result.is_error
            assert (await plugins.ReloadPlugin(by_folder, timeout=BOUND_S)).plugin.name == "tells"


async def test_health_follows_what_changes_by_itself(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "says", "says", SAYS)
    with running_sidecar([folder]) as sidecar:
        async with sidecar.channel() as channel:
            health = health_pb2_grpc.HealthStub(channel)
            asked = health_pb2.HealthCheckRequest(service="plugin/says")
            watch = health.Watch(asked, timeout=BOUND_S)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            (copy,) = (sidecar.folder / ".fumehood/plugins").iterdir()
            copy.rename(copy.parent / "aside")
            assert (await health.Check(asked)).status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            tools = tool_service_pb2_grpc.ToolServiceStub(channel)
            assert not (await tools.ListTools(tool_pb.ListToolsRequest())).tools
            (copy.parent / "aside").rename(copy)
            assert (await health.Check(asked)).status == health_pb2.HealthCheckResponse.SERVING
            watch.cancel()


@pytest.mark.parametrize(
    ("service", "status"),
    [("", "SERVING"), ("fumehood.v1.ToolService", "SERVING"), ("fumehood.v1.PluginService", "SERVING"),
     ("plugin/speech", "SERVING")],
)  # fmt: skip
async def test_health_has_an_entry_for_each_service_and_plugin(
    channel: grpc.aio.Channel, service: str, status: str
) -> None:
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))
    assert health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status) == status


async def test_health_of_what_is_not_here_is_not_found(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="plugin/no"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
