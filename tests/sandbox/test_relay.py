"""Level `external` with a relay: the one socket that leads out, and everything that does not."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fumehood_sandbox import Backend, Executable, Level, Policy, PolicyError, SandboxUnavailableError, start

from .harness import BOUND_S, inside, read_line, read_to_end, readable, running

pytestmark = pytest.mark.promise("S404")

RELAYED = Policy(level=Level.EXTERNAL, relay=True)


@contextmanager
def listening() -> Iterator[socket.socket]:
    """A server of the machine's own, which nobody inside may reach."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def accepted(listener: socket.socket) -> socket.socket:
    readable(listener.fileno())
    connection, _ = listener.accept()
    connection.settimeout(BOUND_S)
    return connection


def test_what_connects_to_the_relay_is_accepted_by_the_launcher(tmp_path: Path) -> None:
    code = """
    from urllib.parse import urlsplit
    at = urlsplit(os.environ["HTTP_PROXY"])
    with socket.create_connection((at.hostname, at.port)) as connection:
        connection.sendall(b"CONNECT a.example:443")
        variables = {name: os.environ[name] for name in sorted(os.environ) if "proxy" in name.lower()}
        report([connection.recv(100).decode(), variables])
    """
    with running(tmp_path, code, RELAYED) as process:
        assert process.relay is not None
        with accepted(process.relay) as connection:
            assert connection.recv(100) == b"CONNECT a.example:443"
            connection.sendall(b"HTTP/1.1 403 No")
        said = eval(read_line(process.stdout), {})  # noqa: S307 - our own list
        port = process.relay.getsockname()[1]
        layers = {layer.name: layer.detail for layer in process.receipt.layers}
    url = f"http://127.0.0.1:{port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    expected = {each: url for name in names for each in (name, name.lower())} | {"NO_PROXY": "", "no_proxy": ""}
    expected["NODE_USE_ENV_PROXY"] = "1"
    assert said == ["HTTP/1.1 403 No", expected]
    assert f"127.0.0.1:{port}" in layers["relay"]
    assert process.relay.fileno() == -1  # closed with the process


def test_an_executable_is_told_of_the_relay_too() -> None:
    from fumehood_sandbox import launch, system_runtime  # noqa: PLC0415 - of this test alone

    policy = Policy(
        level=Level.EXTERNAL, relay=True, runtime=system_runtime(), environment=(("PATH", "/usr/bin:/bin"),)
    )
    with launch(policy, Executable(("sh", "-c", "echo $https_proxy")), timeout_s=BOUND_S) as process:
        out, err = read_to_end(process)
        assert process.relay is not None
        assert out.strip() == f"http://127.0.0.1:{process.relay.getsockname()[1]}", err


def test_nothing_but_the_relay_can_be_reached(tmp_path: Path) -> None:
    code = """
    import time
    def connect(address, family=socket.AF_INET):
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(30)
            try:
                connection.connect(address)
            except OSError as error:
                return errno.errorcode.get(error.errno, str(error))
        return "done"
    port = int(os.environ["HTTP_PROXY"].rpartition(":")[2])
    report({
        "relay": connect(("127.0.0.1", port)),
        "host": connect(("127.0.0.1", HOST)),
        "host by ipv6": connect(("::1", HOST), socket.AF_INET6),
        "host by mapped": connect(("::ffff:127.0.0.1", HOST), socket.AF_INET6),
        "another address": connect(("127.0.0.2", HOST)),
        "public": connect(("192.0.2.1", 443)),
        "metadata": connect(("169.254.169.254", 80)),
        "interfaces": os.listdir("/sys/class/net") if os.path.exists("/sys/class/net") else "none",
    })
    """
    with listening() as server:
        found = inside(tmp_path, code.replace("HOST", str(server.getsockname()[1])), RELAYED)
        assert not select.select([server], [], [], 0)[0]
    assert found.pop("relay") == "done"
    assert found.pop("interfaces") == "none"
    # Landlock's answer where it knows of TCP, the empty namespace's where it doesn't.
    assert set(found.values()) <= {"EACCES", "ECONNREFUSED", "ENETUNREACH"}


def test_no_socket_but_tcp_can_be_made_and_none_can_listen(tmp_path: Path) -> None:
    code = """
    def made(*arguments):
        return error_of(lambda: socket.socket(*arguments).close())
    families = {name: getattr(socket, name) for name in dir(socket) if name.startswith("AF_")}
    tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    report({
        "tcp": made(socket.AF_INET, socket.SOCK_STREAM),
        "tcp by number": made(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP),
        "udp": made(socket.AF_INET, socket.SOCK_DGRAM),
        "udp6": made(socket.AF_INET6, socket.SOCK_DGRAM),
        "raw": made(socket.AF_INET, socket.SOCK_RAW, 1),
        "mptcp": made(socket.AF_INET, socket.SOCK_STREAM, 262),
        "sctp": made(socket.AF_INET, socket.SOCK_STREAM, 132),
        "families": {name: made(number, socket.SOCK_STREAM) for name, number in families.items()
                     if number not in (socket.AF_INET, socket.AF_INET6)},
        "bind": error_of(lambda: tcp.bind(("127.0.0.1", 0))),
        "listen": error_of(lambda: tcp.listen()),
        "accept": error_of(lambda: tcp.accept()),
        "datagram pair": error_of(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)),
        "pair": error_of(lambda: socket.socketpair()),
    })
    """
    found: dict[str, Any] = inside(tmp_path, code, RELAYED)
    assert [found.pop(name) for name in ("tcp", "tcp by number", "pair")] == ["done"] * 3
    families = found.pop("families")
    assert {"AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_VSOCK"} <= set(families)
    assert set(families.values()) == {"EPERM"}
    assert set(found.values()) == {"EPERM"}


def test_without_a_relay_the_level_has_no_socket(tmp_path: Path) -> None:
    code = """
    report([error_of(lambda: socket.socket()), sorted(name for name in os.environ if "roxy" in name.lower())])
    """
    with running(tmp_path, code, Policy(level=Level.EXTERNAL)) as process:
        assert process.relay is None
        assert eval(read_line(process.stdout), {}) == ["EPERM", []]  # noqa: S307 - our own list


def test_a_relay_needs_the_level_and_a_network_namespace() -> None:
    program = Executable(("true",))
    with pytest.raises(PolicyError, match="reaches nothing"):
        start(Policy(level=Level.WRITE, relay=True), program)
    with pytest.raises(SandboxUnavailableError, match="network namespace"):
        start(Policy(level=Level.EXTERNAL, relay=True, minimum=Backend.LANDLOCK), program, backend=Backend.LANDLOCK)


def test_policies_with_and_without_a_relay_differ() -> None:
    assert RELAYED.digest() != Policy(level=Level.EXTERNAL).digest()


def test_a_start_that_fails_leaves_no_descriptor(tmp_path: Path) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        with running(tmp_path, "report(1)", RELAYED):
            pass
        start(RELAYED, Executable(("true",))).abort()
    assert len(set(Path("/proc/self/fd").iterdir()) - before) <= 1
