"""The files of TLS: the sidecar's certificate chain and key, and the authority of callers' certificates (PEM)."""

from __future__ import annotations

import functools
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood_server.config.callers import TlsConfig
from fumehood_server.errors import FumehoodError
from fumehood_server.model.text import printable
from fumehood_server.secrets import SecretSource, SecretUnavailableError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

MAX_PEM_BYTES = 256 * 1024
"""A bundle of a hundred authorities is smaller."""

EXPIRES_SOON_S = 14 * 86_400
"""Two weeks: certificates that live for 90 days are renewed at 60."""


class CertificateError(FumehoodError):
    """TLS can't be served with these files. The operator must mend one; `remedy` says how."""

    def __init__(self, key: str, path: Path, problem: str, remedy: str) -> None:
        """`key` is that of [server.tls] which names the file."""
        super().__init__(f"`{key}` of [server.tls], {printable(path)}: {problem}")
        self.key = key
        self.path = path
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """What the files held when they were read."""

    chain: bytes
    private_key: bytes
    client_ca: bytes | None
    expires: datetime
    """When the first of the chain and the authorities does."""
    expires_first: Path
    """The file in which that is."""

    def expires_in_s(self) -> float:
        """Seconds until then. Below 0: it has."""
        return (self.expires - datetime.now(UTC)).total_seconds()


def read_certificates(tls: TlsConfig) -> CertificateFiles:
    """Read the files, and check that they belong together. On a thread: it blocks, and imports for some 50 ms.

    Raises:
        CertificateError: one can't be read, is no PEM, others may read the key, or it is that of another certificate.
    """
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - only where TLS is served
        Encoding,
        PublicFormat,
        load_pem_private_key,
    )

    try:
        key = SecretSource(name="server.tls.key", file=tls.key).read_value()
    except SecretUnavailableError as exc:
        raise CertificateError("key", tls.key, exc.problem, exc.remedy) from exc
    chain = _read("certificate", tls.certificate)
    client_ca = None if tls.client_ca is None else _read("client_ca", tls.client_ca)
    try:
        private = load_pem_private_key(key, None)
    except (ValueError, TypeError) as exc:  # TypeError: it is encrypted
        raise CertificateError("key", tls.key, "is no private key in PEM that can be read", _UNENCRYPTED) from exc
    except Exception as exc:  # cryptography has an UnsupportedAlgorithm of its own
        raise CertificateError("key", tls.key, "is a key of a kind that is not known here", "use RSA or ECDSA") from exc
    certificates = _certificates("certificate", tls.certificate, chain)
    raw = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if certificates[0].public_key().public_bytes(*raw) != private.public_key().public_bytes(*raw):
        problem = f"is not the key of the first certificate in {printable(tls.certificate)}"
        raise CertificateError("key", tls.key, problem, "replace both files, the key first")
    ends = [(each.not_valid_after_utc, tls.certificate) for each in certificates]
    if tls.client_ca is not None and client_ca is not None:
        authorities = _certificates("client_ca", tls.client_ca, client_ca)
        ends += [(each.not_valid_after_utc, tls.client_ca) for each in authorities]
    expires, path = min(ends, key=lambda each: each[0])
    return CertificateFiles(
        chain=chain, private_key=key + b"\n", client_ca=client_ca, expires=expires, expires_first=path
    )


def files_seen(tls: TlsConfig) -> tuple[tuple[int, ...] | None, ...]:
    """What changes when a file is replaced or written to: inode, times, size. Blocks as its file system does."""
    return tuple(_seen(each) for each in (tls.certificate, tls.key, tls.client_ca) if each is not None)


def _seen(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


_UNENCRYPTED = "give a PEM file without a password, as `openssl pkey -in KEY` writes it"


def _read(key: str, path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise CertificateError(key, path, "is not a regular file", "name a file")
            if found.st_mode & stat.S_IWOTH:
                raise CertificateError(key, path, "everybody may write it", f"chmod go-w {printable(path)}")
            data = file.read(MAX_PEM_BYTES + 1)
    except OSError as exc:
        problem = f"can't be read: {exc.strerror or exc}"
        raise CertificateError(key, path, problem, "name a file that the sidecar's user may read") from exc
    if len(data) > MAX_PEM_BYTES:
        raise CertificateError(key, path, f"is longer than {MAX_PEM_BYTES:,} bytes", "leave out what isn't needed")
    return data


def _certificates(key: str, path: Path, data: bytes) -> list[Certificate]:
    from cryptography.x509 import load_pem_x509_certificates  # noqa: PLC0415 - likewise

    try:
        return load_pem_x509_certificates(data)
    except ValueError as exc:
        remedy = "give a PEM file: -----BEGIN CERTIFICATE----- and what follows"
        raise CertificateError(key, path, "holds no certificate that can be read", remedy) from exc


@functools.lru_cache(maxsize=1024)
def expiry_of(pem: bytes) -> float:
    """When a caller's certificate expires: POSIX time in seconds. 0, long ago: it can't be read. Takes some 50 µs."""
    from cryptography.x509 import load_pem_x509_certificate  # noqa: PLC0415 - likewise

    try:
        return load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
    except ValueError:
        return 0.0
