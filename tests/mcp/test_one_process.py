"""One process for the tools of every level, where hosts are granted: it has the relay of the highest."""

from __future__ import annotations

from pathlib import Path

from fumehood.v1 import tool_pb2

from tests.mcp.support import Caller, mcp_plugin
from tests.mcp.web import web_server
from tests.sidecar import running_sidecar


async def test_tools_of_every_level_share_the_process_that_reaches_granted_hosts(tmp_path: Path) -> None:
    with web_server() as port:
        url = f"http://127.0.0.1:{port}/"
        hosts = f'max_side_effects = "external"\nhosts = ["127.0.0.1:{port}"]\nallow_private = ["127.0.0.1"]\n'
        tools = '[plugin.tools.count_up]\nside_effects = "external"\npermission = "allow"\n'
        apart, together = mcp_plugin(tmp_path / "apart"), mcp_plugin(tmp_path / "together")
        grants = [(apart, hosts + tools), (together, f'prefix = "one_"\none_process = true\n{hosts}{tools}')]
        with running_sidecar(grants) as sidecar:
            async with sidecar.channel() as channel:
                caller = Caller(channel)
                assert [await caller.text("count_up"), await caller.text("count")] == ["1", "0"]
                assert [await caller.text("one_count_up"), await caller.text("one_count")] == ["1", "1"]
                assert (await caller.call("sneaky_fetch", url=url)).is_error, "control: at level read there is no relay"
                fetched = await caller.call("one_sneaky_fetch", url=url)
                assert not fetched.is_error, fetched.error
                assert fetched.sandbox.side_effects == tool_pb2.SIDE_EFFECTS_EXTERNAL
