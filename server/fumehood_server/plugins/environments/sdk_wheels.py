"""Wheels that hold the metadata of the SDK's distributions and nothing else, for resolvers to find.

The index need not have them, least of all in the versions of this sidecar. None is ever installed.
"""

from __future__ import annotations

import importlib.metadata
import zipfile
from pathlib import Path

from fumehood_server.plugins.environments.sdk_packages import sdk_versions

_WHEEL = "Wheel-Version: 1.0\nGenerator: fumehood\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_sdk_wheels(folder: Path) -> None:
    """Write one for each of the SDK's distributions, as PEP 427 names and fills it."""
    folder.mkdir()
    for name, version in sdk_versions().items():
        metadata = importlib.metadata.distribution(name).read_text("METADATA") or ""
        stem = f"{name.replace('-', '_')}-{version}"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", metadata)
            wheel.writestr(f"{stem}.dist-info/WHEEL", _WHEEL)
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
