"""The journal says by which configuration and which pins calls ran, and evidence of a call shows both."""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path

import grpc
from fumehood.v1 import plugin_service_pb2
from fumehood_evidence.verification import verify
from fumehood_server.journal.evidence import make_bundle
from fumehood_server.journal.keys import load_key
from fumehood_server.journal.sqlite import SqliteReader

from tests.rpc.support import ToolClient, call, refused
from tests.sidecar import running_sidecar, write_plugin

from .reading import Recorded, data

CODE = '''
from fumehood_sdk import Plugin

plugin = Plugin("dice", version="1.0.0")


@plugin.tool(side_effects="none", isolation="process")
def roll(sides: int = 6) -> int:
    """{}"""
    return sides
'''
MORE = '[journal]\nstore = "sqlite"\n[secrets.TOKEN]\nenv = "A_VARIABLE"\n'


async def test_calls_name_the_configuration_and_a_reload_tells_what_it_changed(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    plugin = write_plugin(tmp_path / "plugin", "dice", CODE.format("Rolls a die."))
    with running_sidecar([plugin], more=MORE, at=tmp_path) as sidecar:
        async with sidecar.channel() as channel:
            client = ToolClient(sidecar, channel)
            await client.tools.CallTool(call("roll", call_id="first"))
            (start,) = data(await recorded.call_until("first", "execute_end"), "execute_start")
            (loaded,) = data(recorded.events("configuration_loaded"), "configuration_loaded")
            assert start["configuration"] == loaded["configuration"]
            assert loaded["listen"] == list(sidecar.targets)

            file = tmp_path / "fumehood.toml"
            text = file.read_text().replace("[journal]", "[plugin.tools.roll]\ntimeout_s = 3\n[journal]")
            file.write_text(f"# a word that changes nothing\n{text}[limits.cap]\ncpu_s = 60\n")
            await client.plugins.ReloadConfig(plugin_service_pb2.ReloadConfigRequest())
            await client.tools.CallTool(call("roll", call_id="second"))
            (start,) = data(await recorded.call_until("second", "execute_end"), "execute_start")
            (reloaded,) = data(recorded.events("configuration_reloaded"), "configuration_reloaded")
            assert reloaded["previous"] == loaded["configuration"]
            assert reloaded["configuration"] == start["configuration"]
            assert reloaded["keys"] == ["limits.cap.cpu_s", f"plugin.{plugin}.tools.roll"]
            assert reloaded["changed"] == ["dice"]

            file.write_text("[nonsense]\n")
            status, reason = await refused(client.plugins.ReloadConfig(plugin_service_pb2.ReloadConfigRequest()))
            assert (status, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "RELOAD_REFUSED")
            (event,) = await recorded.until(lambda: recorded.events("request_refused"))
            assert (event["data"]["method"], event["data"]["reason"]) == ("ReloadConfig", "RELOAD_REFUSED")
    signer = load_key(recorded.state)
    with contextlib.closing(SqliteReader(recorded.path)) as reader:
        bundle = make_bundle(reader, signer, call_id="first")
    assert verify(bundle, [signer.verifier]).documents == 4
    assert json.loads(bundle.documents[loaded["configuration"]])["secrets"] == ["TOKEN"]
    assert "A_VARIABLE" not in bundle.to_json()
    (pinned,) = data(recorded.events("plugin_pinned"), "plugin_pinned")
    definition = json.loads(bundle.documents[pinned["definitions"]["roll"].removeprefix("sha256:")])
    assert definition["description"] == "Rolls a die."


async def test_each_pin_is_told_once_and_each_change_that_is_refused(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    plugin = write_plugin(tmp_path / "plugin", "dice", CODE.format("Rolls a die."))
    with running_sidecar([plugin], more=MORE, at=tmp_path) as sidecar:
        async with sidecar.channel() as channel:
            reload = ToolClient(sidecar, channel).plugins.ReloadPlugin
            request = plugin_service_pb2.ReloadPluginRequest(name="dice")
            await reload(request)
            write_plugin(plugin, "dice", CODE.format("Rolls a die that is loaded."))
            await refused(reload(request))
            (changed,) = data(await recorded.until(lambda: recorded.events("plugin_changed")), "plugin_changed")
    (pinned,) = recorded.events("plugin_pinned")
    assert (pinned["plugin"], pinned["data"]["previous"], pinned["data"]["first_seen"]) == ("dice", "", True)
    assert (changed["reason"], changed["pinned"]) == ("definition_changed", pinned["data"]["digest"])
    (tmp_path / "fumehood.lock").unlink()  # and pinned anew, as by `fumehood plugin add`
    with running_sidecar([plugin], more=MORE, at=tmp_path) as sidecar:
        sidecar.signal(signal.SIGTERM)
        assert sidecar.wait() == 0
    first, second = data(recorded.events("plugin_pinned"), "plugin_pinned")
    assert (second["previous"], second["digest"]) == (first["digest"], changed["found"])
    assert second["definitions"]["roll"] != first["definitions"]["roll"]
    assert len(recorded.events("sidecar_started")) == len(recorded.events("sidecar_stopped")) == 2
    assert recorded.verified().fault is None
