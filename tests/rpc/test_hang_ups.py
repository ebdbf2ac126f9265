"""Clients that leave, in whatever they were doing, are no tracebacks in the log."""

from __future__ import annotations

import socket
import struct

import grpc
import pytest
from fumehood.v1 import plugin_service_pb2 as plugin_pb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.rpc.hang_up import hang_ups_end_it
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.rpc.support import BOUND_S, call
from tests.sidecar import Sidecar

ROUNDS = 8
OF_EACH = 10
LINES = 30


def start_all(channel: grpc.aio.Channel) -> list[grpc.aio.Call]:
    tools, plugins, health = ToolServiceStub(channel), PluginServiceStub(channel), health_pb2_grpc.HealthStub(channel)
    follow = plugin_pb.TailPluginLogsRequest(name="speech", follow=True)
    begun: list[grpc.aio.Call] = []
    for _ in range(OF_EACH):
        begun += [
            plugins.TailPluginLogs(follow),
            plugins.GetPlugin(plugin_pb.GetPluginRequest(name="absent")),
            health.Watch(health_pb2.HealthCheckRequest()),
            tools.StreamTool(pb.StreamToolRequest(call=call("chatter", {"count": 200}))),
            tools.CallTool(call("wait", {"seconds": 60})),
            tools.GetTool(pb.GetToolRequest(name="absent")),
        ]
    return begun


async def test_clients_that_leave_are_no_faults_in_the_log(sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel:
        for _ in range(LINES):
            await ToolServiceStub(channel).CallTool(call("wait", {"seconds": 0}), timeout=BOUND_S)
    for round_ in range(ROUNDS):
        async with sidecar.channel() as channel:
            begun = start_all(channel)
            for _ in range(round_):  # so that each round leaves at another moment
                await ToolServiceStub(channel).GetTool(pb.GetToolRequest(name="echo"), timeout=BOUND_S)
            for each in begun if round_ % 2 else ():
                each.cancel()
    async with sidecar.channel() as channel:
        await ToolServiceStub(channel).CallTool(call("echo", {"text": "x"}), timeout=BOUND_S)
    assert [line for line in sidecar.log() if line["event"] == "library_log"] == []


async def test_connections_that_are_reset_are_no_faults_in_the_log(sidecar: Sidecar) -> None:
    greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
    for size in range(len(greeting) + 1):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(sidecar.target.removeprefix("unix:"))
            client.sendall(greeting[:size])
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    async with sidecar.channel() as channel:
        await ToolServiceStub(channel).CallTool(call("echo", {"text": "x"}), timeout=BOUND_S)
    assert [line for line in sidecar.log() if line["event"] == "library_log"] == []


def test_only_what_could_not_be_sent_counts_as_a_client_that_left() -> None:
    with hang_ups_end_it():
        raise ExceptionGroup("", [grpc.aio.InternalError(), ExceptionGroup("", [grpc.aio.InternalError()])])
    for other in (ValueError(), ExceptionGroup("", [grpc.aio.InternalError(), ValueError()])):
        with pytest.raises(type(other)), hang_ups_end_it():
            raise other
