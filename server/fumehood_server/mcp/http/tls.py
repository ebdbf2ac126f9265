"""TLS of the listener: the files of `[server.tls]`, taken up anew when they change."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from fumehood_server.telemetry import get_logger

LOOK_S = 1.0
"""Between two looks at the files, as for gRPC's listeners."""


class ServerTls:
    """One context, whose certificate is replaced in place: for new connections, while open ones stay."""

    def __init__(self, certificate: str, key: str, client_ca: str = "") -> None:
        """Read the files. With `client_ca` a connection without a certificate of it comes to nothing.

        Raises:
            OSError, ssl.SSLError: they can't be served.
        """
        self._files = (certificate, key)
        self._client_ca = client_ca
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.load_cert_chain(certificate, key)
        if client_ca:
            self.context.load_verify_locations(client_ca)
            self.context.verify_mode = ssl.CERT_REQUIRED

    async def watch(self, on_authorities: Callable[[], None]) -> None:
        """Take up what changes, for ever. Files that can't be served leave those of before in force.

        `on_authorities` is called once others vouch for clients, which this context can't take up.
        """
        files = (*self._files, self._client_ca) if self._client_ca else self._files
        seen = await asyncio.to_thread(_seen, files)
        while True:
            await asyncio.sleep(LOOK_S)
            found = await asyncio.to_thread(_seen, files)
            if found == seen:
                continue
            before, seen = seen, found
            try:
                # A context of its own first: half of a replacement must not become the one in force.
                await asyncio.to_thread(ServerTls, *self._files, self._client_ca)
                self.context.load_cert_chain(*self._files)
            except (OSError, ssl.SSLError) as error:
                get_logger().error("mcp_certificate_not_taken_up", problem=str(error))
                continue
            get_logger().info("mcp_certificate_taken_up")
            if self._client_ca and found[-1] != before[-1]:
                on_authorities()


def _seen(files: Sequence[str]) -> list[tuple[int, ...] | None]:
    """What tells whether one has changed."""
    found: list[tuple[int, ...] | None] = []
    for each in files:
        try:
            state = Path(each).stat()
        except OSError:
            found.append(None)
        else:
            found.append((state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size))
    return found
