"""TLS and mutual TLS against the real sidecar, and certificates that are replaced while it serves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from fumehood.v1 import journal_service_pb2 as journal_pb
from fumehood.v1 import plugin_service_pb2 as plugin_pb
from fumehood.v1 import tool_service_pb2 as tool_pb
from fumehood_server.callers import CertificateError, read_certificates
from fumehood_server.config.callers import TlsConfig

from tests.rpc.support import BOUND_S, metadata_of, reason_of
from tests.sidecar import Sidecar, running_sidecar

from .support import Pair, Services, bearer, certified, plain_channel, tls_channel, token_of, write_pair
from .test_tokens import problem, said

TLS = '[server.tls]\ncertificate = "{0}/cert.pem"\nkey = "{0}/key.pem"\n'
READER = '[[caller]]\nname = "reader"\ntools = ["say"]\n'
CONNECT_S = 10.0


@dataclass
class TlsHouse:
    """A sidecar whose TCP speaks TLS."""

    sidecar: Sidecar
    authority: trustme.CA
    files: Path

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.sidecar.targets[1].rpartition(':')[2]}"

    def token(self, caller: str = "reader") -> tuple[tuple[str, str], ...]:
        return bearer(token_of(self.sidecar.folder, caller))


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls(plugin_folder: Path, authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsHouse]:
    files = tmp_path_factory.mktemp("tls")
    write_pair(files, certified(authority, "127.0.0.1"))
    # To be reached from other machines, where `allow_anonymous` lets nobody in.
    server = 'listen = ["unix:s", "0.0.0.0:0"]\nallow_anonymous = true'
    with running_sidecar([plugin_folder], server=server, more=TLS.format(files) + READER) as sidecar:
        yield TlsHouse(sidecar, authority, files)


async def cannot_connect(channel: grpc.aio.Channel, shown: tuple[tuple[str, str], ...] = ()) -> None:
    async with channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await said(Services(channel), shown)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_token_is_taken_over_tls_and_without_one_nobody_is(tls: TlsHouse) -> None:
    async with tls_channel(tls.target, tls.authority) as channel:
        assert await said(Services(channel), tls.token()) == "yes"
        assert await problem(said(Services(channel))) == "credentials_missing"


async def test_plain_text_to_the_port_of_tls_comes_to_nothing(tls: TlsHouse) -> None:
    await cannot_connect(plain_channel(tls.target), tls.token())
    async with plain_channel(tls.sidecar.targets[0]) as channel:
        assert await said(Services(channel)) == "yes"


async def test_a_caller_that_trusts_another_authority_does_not_send_its_token(tls: TlsHouse) -> None:
    await cannot_connect(tls_channel(tls.target, trustme.CA()), tls.token())


@pytest.mark.slow("many rounds under load")
async def test_no_call_is_lost_while_certificates_are_replaced(tls: TlsHouse) -> None:
    """New connections all the while, by callers that trust both authorities, beside one that stays open."""
    new = trustme.CA()
    both = tls.authority.cert_pem.bytes() + new.cert_pem.bytes()
    shown, ended, calls = tls.token(), False, 0

    async def connect_anew() -> None:
        nonlocal calls
        while not ended:
            credentials = grpc.ssl_channel_credentials(both)
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.secure_channel(tls.target, credentials, options=options) as channel:
                assert await said(Services(channel), shown) == "yes"
                calls += 1

    async with tls_channel(tls.target, tls.authority) as lasting, asyncio.TaskGroup() as tasks:
        await said(Services(lasting), shown)
        for _ in range(4):
            tasks.create_task(connect_anew())
        for authority in (new, tls.authority, new, tls.authority):
            other = tls.authority if authority is new else new
            before = taken_up(tls.sidecar)
            write_pair(tls.files, certified(authority, "127.0.0.1"))
            await asyncio.to_thread(until_taken_up, tls.sidecar, before)
            async with tls_channel(tls.target, authority) as channel:
                assert await said(Services(channel), shown) == "yes"
            await cannot_connect(tls_channel(tls.target, other), shown)
            assert await said(Services(lasting), shown) == "yes"
        ended = True
    assert calls > 4


def taken_up(sidecar: Sidecar) -> int:
    return sum(line["event"] == "certificates_taken_up" for line in sidecar.log())


def until_taken_up(sidecar: Sidecar, before: int) -> None:
    deadline = time.monotonic() + BOUND_S
    while taken_up(sidecar) == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_files_that_do_not_belong_together_leave_those_of_before_in_force(tls: TlsHouse) -> None:
    pair, new = certified(tls.authority, "127.0.0.1"), tls.files / "key.pem.new"
    new.touch(0o600)
    new.write_bytes(pair.key)
    new.replace(tls.files / "key.pem")  # whole: of a part of it the log would have a line as well
    line = await asyncio.to_thread(tls.sidecar.logged, event="certificates_not_taken_up")
    assert "is not the key of the first certificate" in line["problem"]
    async with tls_channel(tls.target, tls.authority) as channel, plain_channel(tls.sidecar.targets[0]) as operator:
        assert await said(Services(channel), tls.token()) == "yes"
        reload: Any = Services(operator).plugins.ReloadConfig
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await reload(plugin_pb.ReloadConfigRequest(), timeout=BOUND_S)
        assert reason_of(caught.value) == "RELOAD_REFUSED"
        assert metadata_of(caught.value)["key"] == "server.tls.key"
        (tls.files / "cert.pem").write_bytes(pair.chain)
        await reload(plugin_pb.ReloadConfigRequest(), timeout=BOUND_S)
    async with tls_channel(tls.target, tls.authority) as channel:
        assert await said(Services(channel), tls.token()) == "yes"


@pytest.fixture(scope="module")
def mutual(plugin_folder: Path, authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsHouse]:
    files = tmp_path_factory.mktemp("mutual")
    write_pair(files, certified(authority, "127.0.0.1"))
    (files / "clients.pem").write_bytes(authority.cert_pem.bytes())
    more = TLS.format(files) + f'client_ca = "{files}/clients.pem"\n' + READER
    for name, shown in (("billing", "billing.example"), ("common", "By common name"), ("third", "third.example")):
        more += f'[[caller]]\nname = "{name}"\ntools = ["say"]\ncertificate = "{shown}"\n'
    with running_sidecar([plugin_folder], server='listen = ["unix:s", "127.0.0.1:0"]', more=more) as sidecar:
        yield TlsHouse(sidecar, authority, files)


async def name_recorded(house: TlsHouse, call_id: str) -> tuple[str, str]:
    async with plain_channel(house.sidecar.targets[0]) as channel:
        wanted = journal_pb.EventFilter(start_position=0, call_id=call_id)
        watch = Services(channel).journal.WatchEvents(journal_pb.WatchEventsRequest(filter=wanted), timeout=BOUND_S)
        while not (found := (await watch.read()).events):
            pass
    return found[0].caller, json.loads(found[0].body_json)["data"]["authenticated_by"]


@pytest.mark.parametrize(("names", "common_name", "caller"), [
    (["billing.example"], None, "billing"), (["x.example", "billing.example"], None, "billing"),
    (["x.example"], "By common name", "common"),
])  # fmt: skip
async def test_a_caller_is_known_by_its_certificate(
    mutual: TlsHouse, names: list[str], common_name: str | None, caller: str
) -> None:
    pair, call_id = certified(mutual.authority, *names, common_name=common_name), f"{caller}-{len(names)}"
    async with tls_channel(mutual.target, mutual.authority, pair) as channel:
        assert await said(Services(channel), call_id=call_id) == "yes"
    assert await name_recorded(mutual, call_id) == (caller, "certificate")


async def test_a_certificate_that_names_no_caller_or_two_is_refused(mutual: TlsHouse) -> None:
    async with tls_channel(mutual.target, mutual.authority, certified(mutual.authority, "x.example")) as channel:
        assert await problem(said(Services(channel))) == "certificate_unknown"
    pair = certified(mutual.authority, "billing.example", "third.example")
    async with tls_channel(mutual.target, mutual.authority, pair) as channel:
        assert await problem(said(Services(channel))) == "certificate_ambiguous"


async def test_without_a_certificate_of_the_authority_there_is_no_connection(mutual: TlsHouse) -> None:
    await cannot_connect(tls_channel(mutual.target, mutual.authority), mutual.token())
    forged = certified(trustme.CA(), "billing.example")
    await cannot_connect(tls_channel(mutual.target, mutual.authority, forged))
    async with tls_channel(mutual.target, mutual.authority, certified(mutual.authority, "billing.example")) as channel:
        assert await said(Services(channel)) == "yes"


async def test_a_token_beside_a_certificate_says_who_calls_and_a_wrong_one_is_refused(mutual: TlsHouse) -> None:
    pair = certified(mutual.authority, "billing.example")
    async with tls_channel(mutual.target, mutual.authority, pair) as channel:
        assert await said(Services(channel), mutual.token(), call_id="by-token") == "yes"
        assert await problem(said(Services(channel), bearer("fh_0"))) == "token_unknown"
    assert await name_recorded(mutual, "by-token") == ("reader", "token")


async def test_a_certificate_that_expires_is_refused_on_its_open_connection_and_stream(mutual: TlsHouse) -> None:
    request = tool_pb.SessionRequest(call=tool_pb.CallToolRequest(tool="say", arguments_json='{"text":"yes"}'))
    async with contextlib.AsyncExitStack() as stack:
        for lasts_s in (3, 9, 27):  # until one lasts long enough for a busy machine to begin with it
            expires = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=lasts_s)
            pair = certified(mutual.authority, "billing.example", not_after=expires)
            channel = await stack.enter_async_context(tls_channel(mutual.target, mutual.authority, pair))
            services = Services(channel)
            session: Any = services.tools.Session(timeout=BOUND_S)
            with contextlib.suppress(grpc.aio.AioRpcError):
                assert await said(services) == "yes", "control"
                await session.write(request)
                answer = await session.read()
            if datetime.now(UTC) < expires:
                break
        assert answer.finished.content[0].text == "yes", "control"
        while datetime.now(UTC) < expires:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        assert await problem(said(services)) == "certificate_expired"
        await session.write(request)
        refused = await session.read()
        assert (refused.refused.error.code, json.loads(refused.refused.error.details_json)) == (
            "UNAUTHENTICATED",
            {"problem": "certificate_expired"},
        )


async def test_a_caller_that_is_taken_out_of_the_file_is_refused_on_its_open_connection(mutual: TlsHouse) -> None:
    path = mutual.sidecar.folder / "fumehood.toml"
    text, pair = path.read_text(), certified(mutual.authority, "third.example")
    async with (
        tls_channel(mutual.target, mutual.authority, pair) as channel,
        plain_channel(mutual.sidecar.targets[0]) as operator,
    ):
        reload: Any = Services(operator).plugins.ReloadConfig
        assert await said(Services(channel)) == "yes"
        path.write_text(text[: text.index('[[caller]]\nname = "third"')])
        await reload(plugin_pb.ReloadConfigRequest(), timeout=BOUND_S)
        assert await problem(said(Services(channel))) == "certificate_unknown"
        path.write_text(text)
        await reload(plugin_pb.ReloadConfigRequest(), timeout=BOUND_S)
        assert await said(Services(channel)) == "yes"


def test_files_that_can_not_be_served_are_told_apart(tmp_path: Path, authority: trustme.CA) -> None:
    pair, other = certified(authority, "a.example"), certified(authority, "b.example")
    files = TlsConfig(certificate=tmp_path / "cert.pem", key=tmp_path / "key.pem")
    secret = load_pem_private_key(pair.key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
    )
    write_pair(tmp_path, pair)
    assert read_certificates(files).expires_in_s() > 0
    told = []
    for made, mode in (
        (pair, 0o644),
        (Pair(pair.chain, other.key), 0o600),
        (Pair(pair.chain, b"no key, but long enough"), 0o600),
        (Pair(b"no chain", pair.key), 0o600),
        (Pair(pair.chain, secret), 0o600),
    ):
        write_pair(tmp_path, made)
        files.key.chmod(mode)
        with pytest.raises(CertificateError) as caught:
            read_certificates(files)
        assert caught.value.remedy
        told.append((caught.value.key, caught.value.problem))
    files.key.unlink()
    with pytest.raises(CertificateError, match="can't be read: No such file"):
        read_certificates(files)
    assert [key for key, _ in told] == ["key", "key", "key", "certificate", "key"]
    words = ("others may use", "is not the key of", "no private key", "holds no certificate", "no private key")
    assert [word for word, (_, said_so) in zip(words, told, strict=True) if word not in said_so] == []
