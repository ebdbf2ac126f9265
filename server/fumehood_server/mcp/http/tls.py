"""TLS of the listener: the certificate of `[server.tls]`, taken up anew when its files change."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from fumehood_server.telemetry import get_logger

LOOK_S = 1.0
"""Between two looks at the files, as for gRPC's listeners."""


class ServerTls:
    """One context, whose certificate is replaced in place: for new connections, while open ones stay."""

    def __init__(self, certificate: str, key: str) -> None:
        """Read the files.

        Raises:
            OSError, ssl.SSLError: they can't be served.
        """
        self._files = (certificate, key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.load_cert_chain(certificate, key)

    async def watch(self) -> None:
        """Take up what changes, for ever. Files that can't be served leave those of before in force."""
        seen = await asyncio.to_thread(self._seen)
        while True:
            await asyncio.sleep(LOOK_S)
            found = await asyncio.to_thread(self._seen)
            if found != seen:
                seen = found
                try:
                    # A context of its own first: half of a replacement must not become the one in force.
                    await asyncio.to_thread(ServerTls, *self._files)
                    self.context.load_cert_chain(*self._files)
                except (OSError, ssl.SSLError) as error:
                    get_logger().error("mcp_certificate_not_taken_up", problem=str(error))
                else:
                    get_logger().info("mcp_certificate_taken_up")

    def _seen(self) -> list[tuple[int, ...] | None]:
        found: list[tuple[int, ...] | None] = []
        for each in self._files:
            try:
                state = Path(each).stat()
            except OSError:
                found.append(None)
            else:
                found.append((state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size))
        return found
