"""Where the middleware of `[[middleware]]` would be imported from, without importing it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib.util import find_spec

GROUP = "fumehood.middleware"
"""Entry points of it are middleware."""


def middleware_code(names: Collection[str]) -> Iterator[str]:
    """Files and folders of the packages that the middleware of these names is in, as the import system finds them.

    A finder that a package brought along knows folders that are on no path. What a package imports isn't known yet.
    """
    if not names:
        return
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and few have middleware

    for package in sorted({each.module.partition(".")[0] for each in entry_points(group=GROUP) if each.name in names}):
        try:
            spec = find_spec(package)  # of a top-level name: imports nothing
        except (ImportError, ValueError):
            continue  # loading it says more
        if spec is None:
            continue
        if spec.has_location and spec.origin is not None:
            yield spec.origin
        yield from spec.submodule_search_locations or ()


__all__ = ["GROUP", "middleware_code"]
