"""Mounts of the SDK and its dependencies, from the sidecar's own installation, for Python plugins."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from fumehood_sandbox import Mount

from fumehood_server.errors import FumehoodError

SITE = "/run/fumehood/site"
"""Where the SDK lies inside a sandbox: first on the plugin's `sys.path`."""

PACKAGES = "/run/fumehood/packages"
"""Where the packages of a plugin's lock lie inside: last on its `sys.path`."""

REQUIRED = (
    "fumehood",
    "fumehood_sdk",
    "google.protobuf",
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_extensions",
    "typing_inspection",
)
"""Import names of `fumehood-sdk` and of every distribution that it requires, directly or not."""

DISTRIBUTIONS = (
    "fumehood-protos",
    "fumehood-sdk",
    "protobuf",
    "pydantic",
    "pydantic-core",
    "annotated-types",
    "typing-extensions",
    "typing-inspection",
)
"""The names under which package indexes know them."""

OPTIONAL = ("google._upb",)
"""Import names that make the required ones faster and may be absent: protobuf's compiled runtime."""


class SdkMissingError(FumehoodError):
    """A part of the SDK is not installed beside the sidecar. The operator must mend the installation."""

    def __init__(self, module: str) -> None:
        """Keep the import name that was not found."""
        super().__init__(f"python module {module} is not installed beside the sidecar: python plugins need it")
        self.module = module


@functools.cache
def mounts() -> tuple[Mount, ...]:
    """One mount for each module or package, below `SITE`.

    They are bound one by one: mounting the folder that holds them would show a plugin every library of the sidecar.

    Raises:
        SdkMissingError: a required module is not installed.
    """
    found = []
    for name in (*REQUIRED, *OPTIONAL):
        source = _source(name)
        if source is not None:
            target = f"{SITE}/{name.replace('.', '/')}{'' if source.is_dir() else source.suffix}"
            found.append(Mount(str(source), target))
            found.extend(_bytecode(source, target))
        elif name in REQUIRED:
            raise SdkMissingError(name)
    return tuple(found)


def _bytecode(source: Path, target: str) -> list[Mount]:
    """The bytecode of a single-file module, in __pycache__ beside it: compiling it anew takes 20 ms of each start.

    A package's bytecode lies in the package's own folder.
    """
    compiled = Path(importlib.util.cache_from_source(str(source)))
    if source.is_dir() or not compiled.is_file():
        return []
    return [Mount(str(compiled), str(Path(target).parent / compiled.parent.name / compiled.name))]


def _source(name: str) -> Path | None:
    """The folder of a package or the file of a module, without importing it (its parents are imported)."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin).resolve() if spec.origin else None
