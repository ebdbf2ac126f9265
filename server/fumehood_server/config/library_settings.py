"""Settings and credentials that libraries of this process and installers read, by the environment and the home folder.

Installers are uv and pip, which `fumehood plugin lock` runs as the operator, outside of any sandbox.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

from fumehood_server.config.symlinks import FoundPaths, found_paths

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


def settings_paths() -> FoundPaths:
    """Files and folders that say whom TLS trusts, what is preloaded, where packages come from. They need not exist.

    And symlinks on the way to them, and to credentials.
    """
    trust = ssl.get_default_verify_paths()
    named = {each for each in (trust.cafile, trust.capath, trust.openssl_cafile, trust.openssl_capath) if each}
    for name, value in os.environ.items():
        if name in _SETTINGS or name.startswith(_FAMILIES):
            named |= {value, *re.split(r"[ :;,]+", value)}
    return found_paths(_absolute({*named, *_named_credentials(), *_homes(_HOME_SETTINGS)}))


def credential_paths() -> tuple[Path, ...]:
    """Files with keys and passwords of the operator's that are read by the sidecar's user, as far as they are there."""
    # Not Path.is_file, which raises where a home may not be looked into: a service with ProtectHome= has none.
    return tuple(each for each in found_paths(_absolute(_named_credentials())).paths if os.path.isfile(each))  # noqa: PTH113


def _named_credentials() -> set[str]:
    named = {value for name, value in os.environ.items() if name in _CREDENTIALS or _CLIENT_KEY.fullmatch(name)}
    return {*named, *_homes(_HOME_CREDENTIALS)}


def _homes(names: tuple[str, ...]) -> Iterator[str]:
    home = os.path.expanduser("~")  # noqa: PTH111 - of strings, and no error where there is none
    for name in names:
        yield f"{home}/{name}"
        for folder, variable in _XDG.items():
            if name.startswith(f"{folder}/") and os.environ.get(variable, "").startswith("/"):
                yield f"{os.environ[variable]}/{name.removeprefix(f'{folder}/')}"


def _absolute(named: set[str]) -> Iterator[str]:
    """Absolute ones alone: what a relative one means depends on who reads it. Never the root, which holds all."""
    return (each for each in named if os.path.isabs(each) and os.path.realpath(each) != "/")  # noqa: PTH117 - of strings


__all__ = ["credential_paths", "settings_paths"]
