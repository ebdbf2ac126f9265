"""No plugin is led to where the sidecar itself listens, whatever name or address leads there."""

from __future__ import annotations

import asyncio
import json
import socket
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest
from fumehood.v1 import plugin_service_pb2 as plugin_pb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.egress import OwnListeners, Reason
from fumehood_server.egress.own_listeners import leads_to

from tests.sidecar import Sidecar, running_sidecar, write_plugin

from .relaying import ask, connect, relaying
from .support import answering, external, fetch, names, net, reply

pytestmark = pytest.mark.promise("S813")

ALL = "0.0.0.0"  # noqa: S104 - an address to ask for, not to bind


@pytest.mark.parametrize(
    ("bound", "asked"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", ALL),
        ("127.0.0.1", "::ffff:127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2"),
        ("::1", "::1"),
        ("::1", "::"),
        ("localhost", "127.0.0.1"),
        ("localhost", "::1"),
        (ALL, "127.0.0.3"),
        (ALL, "::1"),
        ("::", "127.0.0.1"),
        ("a-name-of-this-machine", "127.0.0.1"),
    ],
)
def test_what_ends_at_a_listener_is_its_own_and_another_port_or_machine_is_not(bound: str, asked: str) -> None:
    own = OwnListeners([(bound, 7430)])
    assert own.takes(ip_address(asked), 7430)
    assert not own.takes(ip_address(asked), 7431)
    assert not own.takes(ip_address("192.0.2.1"), 7430)
    assert not own.takes(ip_address("2001:db8::1"), 7430)


def test_an_address_of_an_interface_is_of_this_machine_and_its_neighbour_is_not() -> None:
    found = [
        ip_address(each.address)
        for interface in psutil.net_if_addrs().values()
        for each in interface
        if each.family in {socket.AF_INET, socket.AF_INET6} and "%" not in each.address
    ]
    assert found, "even a machine without a network has a loopback interface"
    for address in found:
        assert leads_to(address, ALL), address
        assert leads_to(address, str(address))
        assert not leads_to(address, "203.0.113.7")
        if not address.is_loopback:
            assert not leads_to(address + 1, str(address))


def test_another_address_of_the_loopback_network_is_another_listeners() -> None:
    assert not leads_to(ip_address("127.0.0.2"), "127.0.0.1")


async def test_neither_a_name_nor_an_address_nor_connect_is_dialled_at_an_own_port() -> None:
    forms = ("127.0.0.1", ALL, "::ffff:127.0.0.1")
    async with answering(reply(b"mine")) as mine, answering(reply(b"theirs")) as theirs:
        own = OwnListeners()
        own.add_targets(("unix:/run/fumehood.sock", f"127.0.0.1:{mine.port}", "[::1]:1"))
        resolver = names(
            one_test=forms[0], any_test=forms[1], mapped_test=forms[2], two_test=["93.184.215.14", forms[0]]
        )
        network = net(resolver=resolver, real=True, own=own)
        hosts = [*resolver.table, "127.0.0.1"]
        access = external(*(f"{host}:{port}" for host in hosts for port in (mine.port, theirs.port)), private=forms)
        for host in hosts:
            got = await fetch(network, f"http://{host}:{mine.port}/", access)
            assert got.reason is Reason.ADDRESS_OWN, host
        for host in ("one.test", "127.0.0.1"):
            assert (await fetch(network, f"http://{host}:{theirs.port}/", access)).body == b"theirs"
        async with relaying(network, access) as relay:
            for host in hosts:
                answer = await ask(relay, connect(f"{host}:{mine.port}"))
                assert (answer.status, answer.refusal) == (403, "address_own"), host
    assert mine.requests == []


CODE = '''
from fumehood_sdk import Context, Plugin

plugin = Plugin("snake", version="1.0.0")


@plugin.tool(side_effects="read", idempotent=True)
def knock(port: int, ctx: Context) -> str:
    """Knocks."""
    return str(ctx.http.get(f"http://127.0.0.1:{port}/").status)
'''


async def test_a_sidecar_on_a_port_of_the_kernels_choice_is_not_reached_by_its_own_plugin(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "snake", "snake", CODE)
    async with answering(reply()) as other:
        with running_sidecar([plugin], server='listen = ["unix:fumehood.sock", "127.0.0.1:0"]') as sidecar:
            port = int(sidecar.targets[1].rpartition(":")[2])
            path = sidecar.folder / "fumehood.toml"
            hosts = json.dumps([f"127.0.0.1:{each}" for each in (port, other.port)])
            path.write_text(f'{path.read_text()}\nhosts = {hosts}\nallow_private = ["127.0.0.1"]\n')
            assert await _knock(sidecar, other.port, reload=True) == "200"
            assert "where the sidecar itself listens" in await _knock(sidecar, port)


async def _knock(sidecar: Sidecar, port: int, *, reload: bool = False) -> str:
    async with asyncio.timeout(60), sidecar.channel() as channel:
        if reload:
            await PluginServiceStub(channel).ReloadConfig(plugin_pb.ReloadConfigRequest())
        request = pb.CallToolRequest(tool="knock", arguments_json=json.dumps({"port": port}))
        result = (await ToolServiceStub(channel).CallTool(request)).result
    return result.error.message or result.content[0].text
