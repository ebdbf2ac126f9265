"""gRPC channel to the sidecar: TLS where an authority is named, and the token in the metadata of each request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import grpc

from fumehood_server.cli.credentials import Credentials
from fumehood_server.cli.failure import CommandError
from fumehood_server.model.loopback import is_loopback


def open_channel(
    target: str, options: Sequence[tuple[str, Any]], shown: Credentials
) -> tuple[grpc.Channel, grpc.Channel]:
    """The channel, to be closed, and the one to send requests by.

    Raises:
        CommandError: a token would leave this machine in plain text.
    """
    tls = channel_credentials(target, shown)
    channel = grpc.insecure_channel(target, options) if tls is None else grpc.secure_channel(target, tls, options)
    if not shown.token:
        return channel, channel
    return channel, grpc.intercept_channel(channel, _BearerToken(shown.token))


def channel_credentials(target: str, shown: Credentials) -> grpc.ChannelCredentials | None:
    """TLS for a channel to the target. None: it is in plain text.

    Raises:
        CommandError: a token would leave this machine in plain text.
    """
    if shown.tls_ca is not None and not target.startswith("unix:"):
        return grpc.ssl_channel_credentials(shown.tls_ca, shown.key, shown.certificate)
    is_safe = target.startswith("unix:") or is_loopback(target.rpartition(":")[0].strip("[]"))
    if shown.token and not is_safe:
        what = f"a token must not be sent to {target} in plain text"
        raise CommandError(what, "Give --tls-ca with the authority of the sidecar's certificate.")
    return None


def tls_problem(details: str) -> str:
    """What went wrong with TLS, of gRPC's words for a connection that came to nothing. Empty: nothing did."""
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return "its certificate is not of the authority that --tls-ca names, or is of another host"
    if "Tls handshake failed" in details or "Ssl handshake failed" in details:
        return "it does not speak TLS as this command does: see --tls-ca, --cert and --key"
    return ""


class _CallDetails(NamedTuple):
    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str | bytes]] | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class _BearerToken(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[type-arg] # generic in the stubs alone
    """Adds `authorization` (RFC 6750). Not gRPC's call credentials, which a plain connection on loopback refuses."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:  # noqa: ANN401 - gRPC's
        """See gRPC."""
        return continuation(self._with_token(client_call_details), request)

    def intercept_unary_stream(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:  # noqa: ANN401 - gRPC's
        """See gRPC."""
        return continuation(self._with_token(client_call_details), request)

    def _with_token(self, details: Any) -> _CallDetails:  # noqa: ANN401 - gRPC's
        metadata = [*(details.metadata or ()), self._header]
        return _CallDetails(
            details.method,
            details.timeout,
            metadata,
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
