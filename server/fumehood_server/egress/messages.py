"""HTTP messages at the broker's interface: a plugin's request, its origin, and the response."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

Headers = tuple[tuple[str, str], ...]
"""Names and values in order. Text beyond ASCII stands for ISO 8859-1 bytes. A response's names are in lower case."""

MAX_PIECE_BYTES = 64 * 1024
"""Longest piece of a body that is handed out."""


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """The call that a request is made for. `call_id` and `tool` are empty where only the plugin is known."""

    plugin: str
    tool: str = ""
    call_id: str = ""

    def count_request(self) -> None:
        """Called when a request begins that will be one event. Nobody counts them here."""


class CurrentOrigin(Protocol):
    """Tells which call the process behind a relay serves at the moment."""

    def __call__(self) -> RequestOrigin:
        """The origin of a request that comes now."""


@dataclass(frozen=True, slots=True)
class EgressRequest:
    """One request, unchecked: all of it may be hostile.

    `timeout_s`, `max_response_bytes` and `max_redirects` lower the caps of the access and never raise them; None leaves
    them. A `timeout_s` that is not above 0 and at most 3,600 is refused. With `max_redirects` 0 a redirect is handed
    out as the response that it is.
    """

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""
    timeout_s: float | None = None
    max_response_bytes: int | None = None
    max_redirects: int | None = None
    decode: bool = True
    """Whether a body in gzip or deflate is handed out decoded. The relay hands it on as it came."""


class EgressResponse(Protocol):
    """A response whose head has been read and whose body is read as it is asked for."""

    @property
    def status(self) -> int:
        """The status, 200 to 599."""

    @property
    def url(self) -> str:
        """The URL that answered, after redirects."""

    @property
    def headers(self) -> Headers:
        """Header fields without those of the connection, and without those of an encoding that was undone."""

    @property
    def redirects(self) -> int:
        """How many redirects were followed."""

    def body(self) -> AsyncIterator[bytes]:
        """The body in pieces of 1 to 65,536 bytes, read from the network as they are asked for. Call it once.

        The iterator raises `EgressError` where the body ends too early or a cap is reached: all pieces before that
        were good, and together they are as long as the cap allows.
        """
