"""Requests of a running call to the sidecar: a secret, an HTTP request, the relay.

The grants are those of the call's `WorkerSpec`; the handler checks each request against them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from fumehood_server.model.call import CallContext
    from fumehood_server.model.events import About
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.trace import TraceContext


MAX_ANSWERS = 10_000
"""As many as values are recorded of one call."""
MAX_REFUSED_HOSTS = 8
"""As many as the caller of one call is told of."""
MAX_HEADER_FIELDS = 256
"""Header fields of one request. Each costs time, however short."""


@dataclass(frozen=True, slots=True)
class RefusedHost:
    """Where the relay did not let a program go, and why, in a word of `egress.Reason`."""

    host: str
    port: int
    reason: str


@dataclass(slots=True)
class EgressUsage:
    """Bytes on the network for one call, heads and bodies, so far."""

    sent_bytes: int = 0
    received_bytes: int = 0
    requests: int = 0
    """Those for secrets among them, and those that were refused."""
    recorded: int = 0
    """How many of them the journal was told of one by one."""
    refused_recorded: int = 0
    """Those of them that were refused."""
    refused_hosts: list[RefusedHost] = field(default_factory=list)
    """The last ones that the relay refused, each once, at most `MAX_REFUSED_HOSTS`."""
    answers: Counter[bytes] = field(default_factory=Counter)
    """Digests of the HTTP responses that it was given whole, at most `MAX_ANSWERS`: see `model.http_answers`."""

    def refuse(self, refused: RefusedHost) -> None:
        """Note where the relay did not let the call's program go."""
        if refused in self.refused_hosts:
            self.refused_hosts.remove(refused)
        self.refused_hosts.append(refused)
        del self.refused_hosts[:-MAX_REFUSED_HOSTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestingCall:
    """The call that makes a request."""

    spec: WorkerSpec
    """Has the grants of its process."""
    tool: str
    call_id: str
    context: CallContext
    about: About | None = None
    """What the journal's events of it are about. None: it is not recorded."""
    trace: TraceContext | None = None
    """None: calls are not traced."""
    usage: EgressUsage = field(default_factory=EgressUsage)
    """The handler adds to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundRequest:
    """An HTTP request, unchecked: all of it may be hostile. None takes the operator's cap."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    timeout_s: float | None
    max_response_bytes: int | None
    max_redirects: int | None


class InboundResponse(Protocol):
    """A response whose head has been read and whose body is read as it is asked for."""

    @property
    def status(self) -> int:
        """The status."""

    @property
    def url(self) -> str:
        """The URL that answered."""

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Header fields, with names in lower case."""

    @property
    def redirects(self) -> int:
        """How many redirects were followed."""

    def body(self) -> AsyncIterator[bytes]:
        """The body, in pieces of at most 64 KiB. Raises `PluginRequestError` where it breaks off."""


class PluginRequestHandler(Protocol):
    """Performs the requests of calls. Cancelling the task that awaits one ends it."""

    async def secret(self, call: RequestingCall, name: str) -> bytes:
        """The value of a secret as it is now.

        Raises:
            SecretUnavailableError: it is not granted to the call, or can't be had.
        """

    async def start_secrets(self, spec: WorkerSpec) -> Mapping[str, bytes]:
        """The values of all secrets of a worker that is being started, by name.

        Raises:
            SecretUnavailableError: one can't be had.
        """

    def http(self, call: RequestingCall, request: OutboundRequest) -> AbstractAsyncContextManager[InboundResponse]:
        """Perform an HTTP request; leaving the block ends it.

        Raises:
            PluginRequestError: on entering: it is refused, or there is no response.
        """

    def relay(
        self, spec: WorkerSpec, listener: socket.socket, current_call: Callable[[], RequestingCall | None]
    ) -> AbstractAsyncContextManager[None]:
        """Serve the programs of a process that only know HTTP_PROXY, by the rules of `http`, within the block.

        The block owns `listener`, a socket that listens in the process's network namespace. `current_call`
        returns the call that runs there at the moment, or None where it can't be told.
        """
