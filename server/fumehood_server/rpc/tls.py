"""TLS credentials of gRPC servers, which take up new certificates: for new connections, while open ones stay."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from fumehood_server.callers.certificates import (
    EXPIRES_SOON_S,
    CertificateError,
    CertificateFiles,
    files_seen,
    read_certificates,
)
from fumehood_server.config.callers import TlsConfig
from fumehood_server.telemetry import get_logger

LOOK_S = 1.0
"""Between two looks at the files (three stat(2)). Kubernetes itself takes a minute to replace them."""


class ServedCertificates:
    """The certificates in force. For one event loop, but for what gRPC's threads ask at each handshake."""

    def __init__(self, tls: TlsConfig, files: CertificateFiles) -> None:
        """`files` are those of `tls`."""
        self._tls = tls
        self._files = files
        self._configuration = _configuration(files)
        self._warned = False
        self._warn_of_expiry()

    @classmethod
    async def read(cls, tls: TlsConfig) -> ServedCertificates:
        """Those that the files hold now.

        Raises:
            CertificateError: they can't be served.
        """
        return cls(tls, await asyncio.to_thread(read_certificates, tls))

    @property
    def asks_callers(self) -> bool:
        """Whether callers show certificates of their own."""
        return self._tls.client_ca is not None

    def credentials(self) -> grpc.ServerCredentials:
        """For one server. A caller without a certificate of the authority's can't connect, where there is one.

        gRPC asks for a certificate of every caller or of none: it has no way to serve both at one address.
        """
        configuration = self._configuration

        def newer() -> Any:  # noqa: ANN401 - a class of gRPC's, which its stubs lack
            # gRPC calls it on a thread of its own before each handshake.
            nonlocal configuration
            if self._configuration is configuration:
                return None
            configuration = self._configuration
            return configuration

        return grpc.dynamic_ssl_server_credentials(configuration, newer, self.asks_callers)

    async def read_again(self) -> CertificateFiles:
        """What the files hold now, for `take_up`.

        Raises:
            CertificateError: it can't be served. What is in force stays.
        """
        return await asyncio.to_thread(read_certificates, self._tls)

    def take_up(self, files: CertificateFiles) -> None:
        """Serve these from the next handshake on. Logs it where they are others."""
        if files == self._files:
            return
        self._files, self._configuration, self._warned = files, _configuration(files), False
        get_logger().info("certificates_taken_up", expires=files.expires.isoformat())
        self._warn_of_expiry()

    async def watch(self) -> None:
        """Take up what changes, for ever. Files that can't be served are logged once, until they change again."""
        seen = None
        while True:
            found = await asyncio.to_thread(files_seen, self._tls)
            if found != seen:
                seen = found
                try:
                    self.take_up(await self.read_again())
                except CertificateError as exc:
                    get_logger().error("certificates_not_taken_up", problem=str(exc), remedy=exc.remedy)
            self._warn_of_expiry()
            await asyncio.sleep(LOOK_S)

    def _warn_of_expiry(self) -> None:
        left_s = self._files.expires_in_s()
        if left_s < EXPIRES_SOON_S and not self._warned:
            self._warned = True
            get_logger().warning(
                "certificate_expires",
                file=str(self._files.expires_first),
                expires=self._files.expires.isoformat(),
                expired=left_s <= 0,
            )


def _configuration(files: CertificateFiles) -> Any:  # noqa: ANN401 - likewise
    return grpc.ssl_server_certificate_configuration(
        [(files.private_key, files.chain)], root_certificates=files.client_ca
    )
