"""More connections than there is room for: the others go on, and an operator gets in by an address of his own."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import grpc
import pytest
from fumehood.v1 import plugin_service_pb2 as plugins_pb
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.rpc import connections_that_fit
from fumehood_server.rpc.descriptors import OWN_DESCRIPTORS

from tests.rpc.http2 import SETTINGS, Http2
from tests.rpc.support import BOUND_S, call, text_of
from tests.sidecar import Sidecar, running_sidecar

BOTH = 'listen = ["unix:s", "127.0.0.1:0"]\n'
DESCRIPTORS = 400


def idle(target: str, stack: contextlib.ExitStack) -> bool:
    """Open a connection that asks for nothing. Whether it is taken."""
    try:
        return stack.enter_context(Http2(target)).receive()[0] == SETTINGS
    except (EOFError, ConnectionError):
        return False


async def answers(sidecar: Sidecar, target: str) -> bool:
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        answer = await ToolServiceStub(channel).CallTool(
            call("echo", {"text": "hi"}), timeout=BOUND_S, wait_for_ready=True
        )
        await PluginServiceStub(channel).ListPlugins(plugins_pb.ListPluginsRequest(), timeout=BOUND_S)
    return sidecar.process.poll() is None and text_of(answer.result) == "hi"


async def test_connections_above_the_bound_of_one_address_leave_the_other_open(plugin_folder: Path) -> None:
    with (
        running_sidecar([plugin_folder], server=BOTH + "max_connections = 8") as sidecar,
        contextlib.ExitStack() as stack,
    ):
        taken = [idle(sidecar.targets[1], stack) for _ in range(20)]
        assert taken == [True] * 8 + [False] * 12
        assert await answers(sidecar, sidecar.targets[0])


async def test_idle_connections_are_closed_and_make_room(plugin_folder: Path) -> None:
    server = BOTH + "max_connections = 2\nconnection_idle_s = 1"
    with running_sidecar([plugin_folder], server=server) as sidecar, contextlib.ExitStack() as stack:
        assert [idle(sidecar.targets[1], stack) for _ in range(3)] == [True, True, False]
        assert await answers(sidecar, sidecar.targets[1])


async def test_connections_never_take_the_descriptors_that_calls_need(plugin_folder: Path) -> None:
    limited = ("/bin/sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$0" "$@"', sys.executable)
    with running_sidecar([plugin_folder], server=BOTH, interpreter=limited) as sidecar, contextlib.ExitStack() as stack:
        taken = sum(idle(target, stack) for target in sidecar.targets for _ in range(DESCRIPTORS))
        assert taken == 2 * connections_that_fit(1024, 2, DESCRIPTORS)
        line = sidecar.logged(event="fewer_connections")
        assert line["max_connections"] == taken // 2
        stack.close()
        assert await answers(sidecar, sidecar.targets[0])


@pytest.mark.parametrize(
    ("descriptors", "addresses", "fit"), [(65_536, 1, 1024), (1024, 2, 256), (300, 4, 11), (16, 16, 1)]
)
def test_what_fits_leaves_the_sidecar_its_own(descriptors: int, addresses: int, fit: int) -> None:
    assert connections_that_fit(1024, addresses, descriptors) == fit
    assert fit == 1 or fit * addresses + min(OWN_DESCRIPTORS, descriptors // 2) <= descriptors
