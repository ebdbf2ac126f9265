"""Distributions that every plugin gets from the sidecar. They come first on `sys.path`, so no lock may hold another.

Two versions of pydantic in one process can't work: the SDK's schemas are made by the one that it was imported with.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fumehood_server.plugins.launch.sdk_site import DISTRIBUTIONS


@functools.cache
def sdk_versions() -> Mapping[str, str]:
    """Their versions here, by canonical name (PEP 503)."""
    found: dict[str, str] = {}
    for name in DISTRIBUTIONS:
        try:
            found[canonicalize_name(name)] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # importable all the same, from a folder on sys.path
            continue
    return MappingProxyType(found)


def is_of_sdk(name: str) -> bool:
    """Whether the distribution is one of the SDK's."""
    return canonicalize_name(name) in {canonicalize_name(each) for each in DISTRIBUTIONS}


def unmet(requirements: Iterable[str]) -> list[str]:
    """Those requirements that the SDK's distributions don't meet in their versions here, each with the version."""
    found = []
    for text in requirements:
        requirement = Requirement(text)
        version = sdk_versions().get(canonicalize_name(requirement.name))
        if version is not None and not requirement.specifier.contains(version, prereleases=True):
            found.append(f"{text}, and {requirement.name} is {version} here")
    return found
