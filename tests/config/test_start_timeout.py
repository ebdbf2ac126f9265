"""How long a plugin may take to start is the operator's: it is held to that, and not to what another machine needs."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.rpc.support import BOUND_S, call
from tests.sidecar import running_sidecar, write_plugin

_CODE = '''
import time
from fumehood_sdk import Plugin

plugin = Plugin("slow", version="1.0.0")
time.sleep({import_s})


@plugin.tool(side_effects="none")
def hello() -> str:
    """Say hello."""
    return "hello"
'''


@pytest.mark.parametrize(("timeout_s", "served"), [(0.3, False), (30, True)])
def test_a_plugin_is_given_the_time_to_start_that_the_operator_says(
    tmp_path: Path, timeout_s: float, served: bool
) -> None:
    plugin = write_plugin(tmp_path / "plugin", "slow", _CODE.format(import_s=60 if not served else 1))
    with (
        running_sidecar([plugin], server=f"start_timeout_s = {timeout_s}") as sidecar,
        grpc.insecure_channel(sidecar.target) as channel,
    ):
        result = ToolServiceStub(channel).CallTool(call("hello"), timeout=BOUND_S).result
        sidecar.logged(event="execute_end")  # which comes after
        log = sidecar.log()
    assert result.is_error is not served, log
    assert any("within 0.3 s (server.start_timeout_s;" in str(line) for line in log) is not served
