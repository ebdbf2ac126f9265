"""Settings and credentials that libraries of this process and installers read, by the environment and the home folder.

Installers are uv and pip, which `fumehood plugin lock` runs as the operator, outside of any sandbox.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

_SETTINGS = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES"),
    *("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "GRPC_SYSTEM_SSL_ROOTS_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("HOSTALIASES", "LOCPATH", "TZDIR", "PYTHONTZPATH", "PYTHONSTARTUP"),
    *("GCONV_PATH", "LD_AUDIT", "LD_PRELOAD"),  # libraries (ld.so(8), iconv(3))
)
"""Variables that name files and folders."""
_CREDENTIALS = ("NETRC", "PIP_CLIENT_CERT", "PIP_CONFIG_FILE", "SSL_CLIENT_CERT", "SSLKEYLOGFILE", "UV_CONFIG_FILE")
"""Those that name a key, a password, or settings that passwords may stand in (the URL of an index)."""
_CLIENT_KEY = re.compile(r"OTEL_EXPORTER_OTLP_([A-Z]+_)?CLIENT_KEY")
_FAMILIES = ("OTEL_EXPORTER_OTLP_", "PIP_", "UV_")
"""Beginnings of variables of which many name files."""
_HOME_CREDENTIALS = (".netrc", ".pip/pip.conf", ".config/pip/pip.conf", ".config/uv/uv.toml")
_HOME_SETTINGS = (".pip", ".config/pip", ".config/uv", ".cache/pip", ".cache/uv", ".local/share/uv")
_XDG = {".config": "XDG_CONFIG_HOME", ".cache": "XDG_CACHE_HOME", ".local/share": "XDG_DATA_HOME"}


def settings_paths() -> tuple[Path, ...]:
    """Files and folders that say whom TLS trusts, what is preloaded, where packages come from. They need not exist."""
    trust = ssl.get_default_verify_paths()
    named = {each for each in (trust.cafile, trust.capath, trust.openssl_cafile, trust.openssl_capath) if each}
    for name, value in os.environ.items():
        if name in _SETTINGS or name.startswith(_FAMILIES):
            named |= {value, *re.split(r"[ :;,]+", value)}
    named |= {*_homes(_HOME_SETTINGS), *_homes(_HOME_CREDENTIALS)}
    return _real(named)


def credential_paths() -> tuple[Path, ...]:
    """Files with keys and passwords of the operator's that are read by the sidecar's user, as far as they are there."""
    named = {value for name, value in os.environ.items() if name in _CREDENTIALS or _CLIENT_KEY.fullmatch(name)}
    # Not Path.is_file, which raises where a home may not be looked into: a service with ProtectHome= has none.
    return tuple(each for each in _real({*named, *_homes(_HOME_CREDENTIALS)}) if os.path.isfile(each))  # noqa: PTH113


def _homes(names: tuple[str, ...]) -> Iterator[str]:
    home = os.path.expanduser("~")  # noqa: PTH111 - of strings, and no error where there is none
    for name in names:
        yield f"{home}/{name}"
        for folder, variable in _XDG.items():
            if name.startswith(f"{folder}/") and os.environ.get(variable, "").startswith("/"):
                yield f"{os.environ[variable]}/{name.removeprefix(f'{folder}/')}"


def _real(named: set[str]) -> tuple[Path, ...]:
    """Absolute ones alone: what a relative one means depends on who reads it. Never the root, which holds all."""
    found = {Path(os.path.realpath(each)) for each in named if os.path.isabs(each)}  # noqa: PTH117 - of strings
    return tuple(sorted(found - {Path("/")}))


__all__ = ["credential_paths", "settings_paths"]
