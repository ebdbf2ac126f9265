"""A package index of a test's own: a folder of wheels and source distributions."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import textwrap
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def make_wheel(
    index: Path, name: str, version: str = "1.0.0", *, files: Mapping[str, str], requires: Sequence[str] = ()
) -> Path:
    """Write a wheel of these modules (PEP 427)."""
    index.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {each}\n" for each in requires)
    contents = {path: textwrap.dedent(text) for path, text in files.items()}
    contents[f"{info}/METADATA"] = metadata
    contents[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{path},{_record_hash(text)},{len(text.encode())}\n" for path, text in contents.items())
    contents[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    wheel = index / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    return wheel


def make_sdist(index: Path, name: str, version: str = "1.0.0", *, touches: Path) -> Path:
    """Write a source distribution whose build makes the file `touches`."""
    index.mkdir(exist_ok=True)
    setup = f"""
        from pathlib import Path
        Path({str(touches)!r}).touch()
        from setuptools import setup
        setup(name={name!r}, version={version!r}, py_modules=[])
    """
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "setup.py": textwrap.dedent(setup),
    }
    archive = index / f"{name}-{version}.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text.encode())
            file.addfile(member, io.BytesIO(text.encode()))
    return archive


def index_environment(index: Path) -> dict[str, str]:
    """Variables by which uv and pip know this index and no other."""
    config = index.parent / "uv.toml"
    config.write_text(f"no-index = true\nno-cache = true\nfind-links = [{json.dumps(str(index))}]\n")
    return {
        "UV_CONFIG_FILE": str(config),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
        "PIP_NO_CACHE_DIR": "1",
        "PIP_CONFIG_FILE": "/dev/null",
        "XDG_STATE_HOME": str(index.parent / "state"),
    }


def _record_hash(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"
