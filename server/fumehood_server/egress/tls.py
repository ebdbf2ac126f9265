"""TLS trust store: the system's, read once and only when it is first needed."""

from __future__ import annotations

import asyncio
import ssl


class TlsTrust:
    """The context for all connections: certificates verified against the name, TLS 1.2 or later, HTTP/1.1.

    The store is the one that OpenSSL finds: the system's, or what `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    """

    def __init__(self) -> None:
        """Nothing is read yet."""
        self._context: asyncio.Task[ssl.SSLContext] | None = None

    async def context(self) -> ssl.SSLContext:
        """The context. The first to ask has the store read, in a thread, since that takes tens of milliseconds."""
        if self._context is None or (self._context.done() and self._context.exception() is not None):
            self._context = asyncio.create_task(asyncio.to_thread(_read), name="egress trust store")
        return await asyncio.shield(self._context)


def _read() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False  # RFC 9525 section 2: names are in subjectAltName alone
    context.set_alpn_protocols(["http/1.1"])
    return context
