"""`[mcp]`: what is refused, what a start needs, TLS, callers without a token, health, and the process's end."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import psutil
import pytest
import structlog
import trustme
from fumehood.v1 import approval_service_pb2, approval_service_pb2_grpc
from fumehood_server.config import load_config
from fumehood_server.config.restart import needs_restart
from fumehood_server.errors import ConfigError
from fumehood_server.mcp import supervisor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from mcp.types import ElicitResult

from tests.callers.support import certified, token_of, write_pair
from tests.cli.command import fumehood
from tests.sidecar import running_sidecar

from .support import BOUND_S, MODERN, error_of, http_client, modern, names, request, text_of, url_of

CALLER = '[[caller]]\nname = "agent"\ntools = ["*"]\n'
TLS = '[server.tls]\ncertificate = "cert.pem"\nkey = "key.pem"\n'
_WITHOUT = """
import sys
sys.modules["mcp"] = None
from fumehood_server.cli import main
sys.argv = ["fumehood", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[mcp]\nlisten = "127.0.0.1:1"\n', "nothing says who may call"),
        ('[mcp]\nlisten = "unix:s"\nallow_anonymous = true\n', "over TCP alone"),
        (f'[mcp]\nlisten = "0.0.0.0:1"\n{CALLER}', "there is no TLS"),
        (f'{TLS}[mcp]\nlisten = "0.0.0.0:1"\n{CALLER}', "there is no TLS"),
        (f'{TLS}[mcp]\nlisten = "0.0.0.0:1"\ntls = true\n', "there are no callers"),
        (f'{TLS}[mcp]\nlisten = "0.0.0.0:1"\ntls = true\nallow_anonymous = true\n{CALLER}', "would let all call"),
        (f'[mcp]\nlisten = "127.0.0.1:1"\ntls = true\n{CALLER}', "no certificate"),
        (
            f'[mcp]\nlisten = "127.0.0.1:1"\nallowed_origins = ["app.example"]\n{CALLER}',
            "can't be in `allowed_origins`",
        ),
        (f'[mcp]\nlisten = "127.0.0.1:1"\nallowed_hosts = ["a/b"]\n{CALLER}', "can't be in `allowed_hosts`"),
        *(
            (f'[mcp]\nlisten = "127.0.0.1:1"\nauthorization_servers = ["{url}"]\n{CALLER}', "`authorization_servers`")
            for url in (
                *("http://login.example.com", "login.example.com", "ftp://login.example.com", "https://a@b.example"),
                *("https://a.example?tenant=b", "https://a.example/b#c", "http://127.0.0.1.evil.example", "https://"),
            )
        ),
        (f'[server]\nstate_dir = "{"x" * 100}"\n[mcp]\nlisten = "127.0.0.1:1"\n{CALLER}', "needs a socket"),
    ],
)
def test_what_leaves_open_who_calls_or_cannot_be_honoured_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "fumehood.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load_config(path)


def test_every_key_arrives_and_a_change_needs_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "fumehood.toml"
    path.write_text(CALLER)
    first = load_config(path)
    path.write_text(
        f'{TLS}[mcp]\nlisten = "[::]:8765"\ntls = true\nallowed_hosts = ["a.example"]\n'
        f'allowed_origins = ["https://b.example"]\n'
        f'authorization_servers = ["https://c.example:8443/tenant/1", "http://127.0.0.1:9000"]\n'
        f"max_sessions = 2\nsession_idle_s = 3\nmax_requests = 4\n{CALLER}"
    )
    second = load_config(path)
    mcp = second.mcp
    assert first.mcp is None
    assert mcp is not None
    assert (mcp.listen.target, mcp.tls, mcp.socket.target) == (
        "[::]:8765", second.server.tls, f"unix:{tmp_path}/.fumehood/mcp.sock",
    )  # fmt: skip
    assert (mcp.allowed_hosts, mcp.allowed_origins) == (("a.example",), ("https://b.example",))
    assert mcp.authorization_servers == ("https://c.example:8443/tenant/1", "http://127.0.0.1:9000")
    assert (mcp.max_sessions, mcp.session_idle_s, mcp.max_requests) == (2, 3, 4)
    assert "mcp" in needs_restart(first, second)
    assert needs_restart(second, second) == ()


def test_a_taken_address_and_a_missing_library_are_named(tmp_path: Path) -> None:
    path = tmp_path / "fumehood.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path.write_text(f'[mcp]\nlisten = "127.0.0.1:{taken.getsockname()[1]}"\n{CALLER}')
        done = fumehood("serve", "--config", path, folder=tmp_path)
    assert (done.status, "can't listen on 127.0.0.1:" in done.stderr, "[mcp]" in done.stderr) == (2, True, True)
    for arguments in (["serve", "--config", str(path)], ["mcp"]):
        missing = subprocess.run(
            [sys.executable, "-c", _WITHOUT, *arguments],
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
        )
        assert missing.returncode == 2
        assert '"./server[mcp]" in a clone, or "fumehood-server[mcp]" from an index' in missing.stderr
        assert "Traceback" not in missing.stderr


async def test_process_that_takes_no_requests_is_ended_and_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pair(tmp_path, certified(trustme.CA(), "127.0.0.1"))
    key, served = tmp_path / "key.pem", tmp_path / "kept.pem"
    key.rename(served)
    os.mkfifo(key)  # whoever opens it to read waits for a writer, and there is none
    path = tmp_path / "fumehood.toml"
    path.write_text(f'{TLS}[mcp]\nlisten = "127.0.0.1:0"\ntls = true\n{CALLER}')
    monkeypatch.setattr(supervisor, "READY_TIMEOUT_S", 0.5)
    serves = asyncio.Event()

    def changed() -> None:
        if health.serves:
            serves.set()
        elif served.exists():  # the first has ended: nothing holds up the next one
            served.replace(key)
            monkeypatch.setattr(supervisor, "READY_TIMEOUT_S", BOUND_S)

    health = supervisor.McpHealth()
    health.on_change = changed
    with structlog.testing.capture_logs() as lines:
        async with supervisor.open_mcp(load_config(path), health):
            await asyncio.wait_for(serves.wait(), BOUND_S)
    (failed,) = [line for line in lines if line["event"] == "mcp_start_failed"]
    assert (failed["problem"], failed["log_level"]) == ("it took no requests within 0.5 s, and was ended", "warning")
    assert [line["event"] for line in lines].count("mcp_serving") == 1


async def approve(_context: object, _params: object) -> ElicitResult:
    return ElicitResult(action="accept", content={"approve": True})


async def test_without_callers_anybody_of_the_machine_calls_and_approves_nothing(plugin_folder: Path) -> None:
    table = '[mcp]\nlisten = "127.0.0.1:0"\nallow_anonymous = true\n'
    with running_sidecar([(plugin_folder, 'max_side_effects = "write"')], more=table) as sidecar:
        url = url_of(sidecar)
        async with http_client(url, MODERN, elicitation_callback=approve) as client:
            assert "note" in await names(client)
            assert text_of(await client.call_tool("say", {"text": "x"})) == "x"
            assert error_of(await client.call_tool("note", {"text": "x"}))["code"] == "TOOL_APPROVAL_REQUIRED"
        async with sidecar.channel() as channel:
            stub = approval_service_pb2_grpc.ApprovalServiceStub(channel)
            (asked,) = (await stub.ListApprovals(approval_service_pb2.ListApprovalsRequest())).approvals
            assert asked.caller.authenticated_by == "none"
            assert asked.caller.connection.startswith("mcp:127.0.0.1:")
            health = health_pb2_grpc.HealthStub(channel)
            sidecar.logged(event="mcp_serving")
            status = (await health.Check(health_pb2.HealthCheckRequest(service="mcp"))).status
            assert status == health_pb2.HealthCheckResponse.SERVING
        process = psutil.Process(sidecar.logged(event="mcp_serving")["pid"])
        sidecar.process.send_signal(signal.SIGKILL)
        process.wait(BOUND_S)  # the kernel ends it with the sidecar


async def test_a_sidecar_without_mcp_knows_no_health_of_it_and_ends_in_order(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder]) as sidecar:
        async with sidecar.channel() as channel:
            health = health_pb2_grpc.HealthStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as unknown:
                await health.Check(health_pb2.HealthCheckRequest(service="mcp"))
            assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        assert not (sidecar.folder / ".fumehood" / "mcp.sock").exists()


def _connection(url: str, authority: trustme.CA, shown: Path | None = None) -> http.client.HTTPSConnection:
    where = urlsplit(url)
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    if shown is not None:
        context.load_cert_chain(shown / "cert.pem", shown / "key.pem")
    return http.client.HTTPSConnection(where.hostname or "", where.port, timeout=BOUND_S, context=context)


def _metadata_over_tls(url: str, authority: trustme.CA) -> object:
    connection = _connection(url, authority)
    try:
        connection.request("GET", "/.well-known/oauth-protected-resource/mcp")
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def _over_tls(url: str, authority: trustme.CA, token: str, shown: Path | None = None) -> int:
    connection = _connection(url, authority, shown)
    body, headers = modern("tools/list")
    shown = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **headers}
    try:
        connection.request("POST", "/mcp", json.dumps(body), {**shown, "Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_tls_takes_up_a_new_certificate_and_ends_with_the_sidecar(plugin_folder: Path, tmp_path: Path) -> None:
    first, second = trustme.CA(), trustme.CA()
    write_pair(tmp_path, certified(first, "127.0.0.1"))
    tls = f'[server.tls]\ncertificate = "{tmp_path}/cert.pem"\nkey = "{tmp_path}/key.pem"\n'
    issuer = "https://login.example.com"
    more = f'{tls}[mcp]\nlisten = "127.0.0.1:0"\ntls = true\nauthorization_servers = ["{issuer}"]\n{CALLER}'
    with running_sidecar([plugin_folder], more=more) as sidecar:
        url, token = url_of(sidecar), token_of(sidecar.folder, "agent")
        assert url.startswith("https:")
        where = urlsplit(url)
        silent = socket.create_connection((where.hostname, where.port), timeout=BOUND_S / 2)
        assert _over_tls(url, first, token) == 200
        assert _metadata_over_tls(url, first) == {
            "resource": url,
            "authorization_servers": [issuer],
            "resource_name": "Fumehood",
            "bearer_methods_supported": ["header"],
        }
        with pytest.raises(ssl.SSLError):
            _over_tls(url, second, token)
        with pytest.raises(OSError):  # noqa: PT011 - reset or an end, as the kernel has it
            request(url, "GET")
        write_pair(tmp_path, certified(second, "127.0.0.1"))
        sidecar.logged(event="mcp_certificate_taken_up")
        assert _over_tls(url, second, token) == 200
        with silent:  # nobody waits a minute for TLS to begin
            assert silent.recv(1) == b""
        process = psutil.Process(sidecar.logged(event="mcp_serving")["pid"])
        sidecar.signal()
        assert sidecar.wait() == 0
        assert not process.is_running()


def test_where_clients_need_certificates_mcp_clients_need_them_too(plugin_folder: Path, tmp_path: Path) -> None:
    serving, first, second = trustme.CA(), trustme.CA(), trustme.CA()
    write_pair(tmp_path, certified(serving, "127.0.0.1"))
    for name, authority in (("first", first), ("second", second)):
        (tmp_path / name).mkdir()
        write_pair(tmp_path / name, certified(authority, f"{name}.example"))
    clients = tmp_path / "clients.pem"
    first.cert_pem.write_to_path(str(clients))
    tls = f'[server.tls]\ncertificate = "{tmp_path}/cert.pem"\nkey = "{tmp_path}/key.pem"\nclient_ca = "{clients}"\n'
    with running_sidecar([plugin_folder], more=f'{tls}[mcp]\nlisten = "127.0.0.1:0"\ntls = true\n{CALLER}') as sidecar:
        url, token = url_of(sidecar), token_of(sidecar.folder, "agent")
        assert _over_tls(url, serving, token, tmp_path / "first") == 200
        assert _over_tls(url, serving, "not-a-token", tmp_path / "first") == 401
        for shown in (None, tmp_path / "second"):
            with pytest.raises(OSError):  # noqa: PT011 - an alert, a reset or an end, as it comes
                _over_tls(url, serving, token, shown)
        second.cert_pem.write_to_path(str(clients))
        sidecar.logged(event="mcp_ended")
        deadline = time.monotonic() + BOUND_S
        while True:  # until the new process serves
            with contextlib.suppress(OSError):
                assert _over_tls(url, serving, token, tmp_path / "second") == 200
                break
            assert time.monotonic() < deadline
        with pytest.raises(OSError):  # noqa: PT011 - likewise
            _over_tls(url, serving, token, tmp_path / "first")
