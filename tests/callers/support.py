"""Callers with names: their tokens and certificates, and requests that show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import trustme
from fumehood.v1.approval_service_pb2_grpc import ApprovalServiceStub
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.callers.token_file import changing, make_token

from tests.sidecar import Sidecar

Metadata = tuple[tuple[str, str], ...]

CODE = '''
import asyncio
from fumehood_sdk import Context, Plugin

plugin = Plugin("speech", version="1.0.0")


@plugin.tool(side_effects="none", idempotent=True, isolation="process")
def say(text: str) -> str:
    """Says it again."""
    return text


@plugin.tool(side_effects="none", isolation="process")
async def wait(seconds: float, ctx: Context) -> str:
    """Says that it has begun, and waits."""
    ctx.update("begun")
    await asyncio.sleep(seconds)
    return "waited"


@plugin.tool(side_effects="none", isolation="process")
def secret_report() -> str:
    """Is not for everybody."""
    return "the report"
'''


@dataclass(frozen=True)
class Pair:
    """A certificate's chain and its key."""

    chain: bytes
    key: bytes


def token_of(folder: Path, caller: str, lifetime_s: int | None = None) -> str:
    """A new token of the caller, in the file of the sidecar of this folder."""
    with changing(folder / ".fumehood" / "tokens.json") as tokens:
        text, token = make_token(caller, lifetime_s, tokens)
        tokens.append(token)
    return text


def revoke(folder: Path, text: str) -> None:
    """Take a token back."""
    with changing(folder / ".fumehood" / "tokens.json") as tokens:
        tokens[:] = [each for each in tokens if each.token_id not in text]


def bearer(token: str) -> Metadata:
    """What a request with this token shows."""
    return (("authorization", f"Bearer {token}"),)


def certified(
    authority: trustme.CA, *names: str, common_name: str | None = None, not_after: datetime | None = None
) -> Pair:
    """A certificate of these names."""
    made = authority.issue_cert(*names, common_name=common_name, not_after=not_after)
    return Pair(b"".join(each.bytes() for each in made.cert_chain_pems), made.private_key_pem.bytes())


def write_pair(folder: Path, pair: Pair) -> None:
    """Put them where `TLS` says, each file replaced whole."""
    for name, data in (("key.pem", pair.key), ("cert.pem", pair.chain)):
        path = folder / f"{name}.new"
        path.touch(0o600)
        path.write_bytes(data)
        path.replace(folder / name)


def tls_channel(target: str, authority: trustme.CA, pair: Pair | None = None) -> grpc.aio.Channel:
    """A connection of its own."""
    shown = grpc.ssl_channel_credentials(
        authority.cert_pem.bytes(), None if pair is None else pair.key, None if pair is None else pair.chain
    )
    options: Sequence[tuple[str, Any]] = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(target, shown, options=options)


def plain_channel(target: str) -> grpc.aio.Channel:
    """A connection of its own, in plain text."""
    return grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])


@dataclass
class Services:
    """The services at one address."""

    channel: grpc.aio.Channel

    def __post_init__(self) -> None:
        self.tools: Any = ToolServiceStub(self.channel)
        self.plugins: Any = PluginServiceStub(self.channel)
        self.journal: Any = JournalServiceStub(self.channel)
        self.approvals: Any = ApprovalServiceStub(self.channel)


@dataclass
class House:
    """A sidecar with callers, and a connection to each of its addresses."""

    sidecar: Sidecar
    unix: Services
    tcp: Services

    def token(self, caller: str, lifetime_s: int | None = None) -> Metadata:
        return bearer(token_of(self.sidecar.folder, caller, lifetime_s))
