"""Reason codes of refused and failed requests, and the exceptions that carry them."""

from __future__ import annotations

from enum import StrEnum

from fumehood_server.errors import FumehoodError
from fumehood_server.model.text import printable


class Reason(StrEnum):
    """Why a request has no whole response. Stable words: plugins, events and docs/egress.md use them."""

    # Refused by a rule, before anything is dialled. The plugin's author or the operator must change something.
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BOUND_INVALID = "bound_invalid"
    URL_INVALID = "url_invalid"
    SCHEME_NOT_ALLOWED = "scheme_not_allowed"
    HOST_INVALID = "host_invalid"
    HOST_RESERVED = "host_reserved"
    HOST_DENIED = "host_denied"
    HOST_NOT_GRANTED = "host_not_granted"
    HEADER_NOT_ALLOWED = "header_not_allowed"
    REQUEST_TOO_LARGE = "request_too_large"
    ADDRESS_NOT_PUBLIC = "address_not_public"
    ADDRESS_DENIED = "address_denied"
    ADDRESS_OWN = "address_own"
    REDIRECT_INVALID = "redirect_invalid"
    REDIRECT_DOWNGRADE = "redirect_downgrade"
    TOO_MANY_REDIRECTS = "too_many_redirects"
    PROXY_REQUEST_INVALID = "proxy_request_invalid"
    RELAY_BUSY = "relay_busy"
    TOO_MANY_LOOKUPS = "too_many_lookups"
    # The network or the server failed.
    NAME_NOT_RESOLVED = "name_not_resolved"
    CONNECT_FAILED = "connect_failed"
    TLS_FAILED = "tls_failed"
    CONNECTION_LOST = "connection_lost"
    BODY_TRUNCATED = "body_truncated"
    RESPONSE_INVALID = "response_invalid"
    ENCODING_INVALID = "encoding_invalid"
    # One of the caps was reached.
    HEAD_TOO_LARGE = "head_too_large"
    RESPONSE_TOO_LARGE = "response_too_large"
    TUNNEL_TOO_LARGE = "tunnel_too_large"
    TIMEOUT = "timeout"

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later, unchanged."""
        return self in _RETRYABLE


_RETRYABLE = frozenset(
    {
        Reason.RELAY_BUSY,
        Reason.TOO_MANY_LOOKUPS,
        Reason.NAME_NOT_RESOLVED,
        Reason.CONNECT_FAILED,
        Reason.CONNECTION_LOST,
        Reason.BODY_TRUNCATED,
        Reason.TIMEOUT,
    }
)

_MAX_MESSAGE = 512
"""Longest message, in characters: it may quote hostile input."""


class EgressError(FumehoodError):
    """A request has no whole response. `reason` says why in a word, `message` in one printable sentence."""

    def __init__(self, reason: Reason, message: str) -> None:
        """Keep both. `message` may quote hostile input: it is made printable and cut at 512 characters."""
        self.reason = reason
        self.message = printable(message)[:_MAX_MESSAGE]
        super().__init__(f"{reason}: {self.message}")

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later, unchanged."""
        return self.reason.retryable


class EgressRefusedError(EgressError):
    """A rule of the broker forbids the request: the plugin's author or the operator must change something."""


class EgressFailedError(EgressError):
    """The request was allowed and did not work out: the network or the server failed, or a cap was reached."""
