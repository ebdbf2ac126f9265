"""Agrees on a revision with an MCP server: 2026-07-28 by `server/discover`, else 2025-11-25 by `initialize`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from fumehood_sdk.adapters.mcp.connection import ServerConnection
from fumehood_sdk.adapters.mcp.faults import ServerFault
from fumehood_sdk.adapters.mcp.messages import Message, problem_of, shown

STATELESS = "2026-07-28"
HANDSHAKES = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions that begin with `initialize`, best first. They differ in nothing that is used here."""
HANDSHAKE_TIMEOUT_S = 30.0
"""The sidecar ends a start that takes too long well before."""
PROBE_TIMEOUT_S = 5.0
"""A server that knows no `server/discover` refuses it at once; one that says nothing is asked the older way."""
UNSUPPORTED_VERSION = -32022
CAPABILITIES: dict[str, Any] = {"roots": {}, "elicitation": {"form": {}}}
"""What a server may ask for: and for sampling, where the operator has granted its plugin an engine. Whether somebody
answers is the sidecar's to say, call by call."""
CLIENT_INFO = {"name": "fumehood", "version": "0.1.0"}


class Session:
    """What was agreed on."""

    __slots__ = ("is_remote", "lists_change", "meta", "offers", "revision", "server")

    def __init__(self, revision: str, answer: dict[str, Any], meta: bytes) -> None:
        self.revision = revision
        self.is_remote = False
        """Whether it is over HTTP, where nobody tells of changes between calls."""
        capabilities = answer.get("capabilities")
        self.offers = frozenset(capabilities) if isinstance(capabilities, dict) else frozenset[str]()
        """Names of the capabilities that the server declares."""
        tools = capabilities.get("tools") if isinstance(capabilities, dict) else None
        self.lists_change = isinstance(tools, dict) and tools.get("listChanged") is True
        said = answer.get("_meta")
        told = said.get("io.modelcontextprotocol/serverInfo") if isinstance(said, dict) else None
        server = answer.get("serverInfo") or told
        name = server.get("name") if isinstance(server, dict) else None
        self.server = name[:64] if isinstance(name, str) else ""
        self.meta = meta if self.is_stateless else b""
        """Fields of each request's `_meta`, each after a comma."""

    @property
    def is_stateless(self) -> bool:
        """Whether each request says what `initialize` said once before."""
        return self.revision == STATELESS

    def params(self, fields: bytes = b"") -> bytes:
        """Parameters of a request other than `tools/call`. `fields` end with a comma each."""
        return b"{%b" % fields + b'"_meta":{%b}}' % self.meta[1:]


def negotiate(connection: ServerConnection, *, stateless: bool = True, samples: bool = False) -> Session:
    """Agree on a revision. Without `stateless` only older ones are asked for. `samples`: whether to offer sampling.

    Raises:
        ServerFault: there is none that both speak, or the server is gone or breaks the protocol.
    """
    probes: list[Message] = []
    capabilities = {**CAPABILITIES, **({"sampling": {}} if samples else {})}
    meta = _META % tuple(json.dumps(each).encode() for each in (STATELESS, CLIENT_INFO, capabilities))
    if stateless:
        connection.request("server/discover", b'{"_meta":{%b}}' % meta[1:], probes.append)
        connection.wait_for(lambda: bool(probes), PROBE_TIMEOUT_S)
        if (found := _stateless(probes, meta)) is not None:
            return found
    params = {"protocolVersion": HANDSHAKES[0], "capabilities": capabilities, "clientInfo": CLIENT_INFO}
    answers: list[Message] = []
    connection.request("initialize", json.dumps(params).encode(), answers.append)
    # One that is slow to start may yet answer the probe, and refuse what came after it.
    connection.wait_for(lambda: bool(answers) or _stateless(probes, meta) is not None, HANDSHAKE_TIMEOUT_S)
    if (found := _stateless(probes, meta)) is not None:
        return found
    if not answers:
        raise ServerFault("the MCP server doesn't answer `initialize`")
    (answer,) = answers
    result = answer.get("result")
    if not isinstance(result, dict):
        raise ServerFault(f"`initialize` is refused: {error_text(answer)}")
    revision = result.get("protocolVersion")
    if revision not in HANDSHAKES:
        raise ServerFault(f"the MCP server speaks the revision {shown(revision)}, which is not spoken here")
    connection.notify("notifications/initialized", b"{}")
    return Session(str(revision), result, meta)


def _stateless(probes: Sequence[Message], meta: bytes) -> Session | None:
    """The session that a probe's answer begins. None: there is no answer, or it calls for `initialize`.

    Raises:
        ServerFault: the server speaks only revisions that are not spoken here.
    """
    if not probes:
        return None
    result, error = probes[0].get("result"), probes[0].get("error")
    if isinstance(result, dict) and STATELESS in _strings(result.get("supportedVersions")):
        return Session(STATELESS, result, meta)
    if isinstance(error, dict) and error.get("code") == UNSUPPORTED_VERSION:
        data = error.get("data")
        supported = _strings(data.get("supported")) if isinstance(data, dict) else []
        if supported and not set(supported) & set(HANDSHAKES):
            raise ServerFault(f"the MCP server speaks {', '.join(supported)[:200]}, and not {STATELESS}")
    return None


def ask(connection: ServerConnection, method: str, params: bytes, within_s: float) -> Message | None:
    """Send a request and wait for its answer. None: there is none in time.

    Raises:
        ServerFault: the server is gone or breaks the protocol.
    """
    answers: list[Message] = []
    begun = time.monotonic()
    number = connection.request(method, params, answers.append)
    if not connection.wait_for(lambda: bool(answers), within_s):
        connection.abandon(number, is_call=False)
        connection.log(f"the MCP server did not answer {method} within {time.monotonic() - begun:.1f} s")
        return None
    return answers[0]


def error_text(answer: Message) -> str:
    """What a response's error says."""
    error = answer.get("error")
    if not isinstance(error, dict):
        return problem_of(answer) or "it answers neither a result nor an error"
    message = error.get("message")
    return f"{message[:400] if isinstance(message, str) else ''} (code {shown(error.get('code'))})"


def _strings(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


_META = (
    b',"io.modelcontextprotocol/protocolVersion":%b'
    b',"io.modelcontextprotocol/clientInfo":%b'
    b',"io.modelcontextprotocol/clientCapabilities":%b'
    b',"io.modelcontextprotocol/logLevel":"info"'
)
"""Without a level a server says nothing to the log: `notifications/message` are for requests that ask for them."""
