"""An import hook that loads a plugin's modules from their sources, never from cached bytecode.

A plugin's digest covers its sources and not `__pycache__`, which Python writes by itself. Bytecode that lies there
would run in place of the source that was pinned if only its recorded time and size fit, and both can be forged.
"""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class SourceOnlyLoader(SourceFileLoader):
    """Source loader that neither reads nor writes `__pycache__`."""

    def path_stats(self, path: str) -> Mapping[str, float]:
        """Refuse: importlib then leaves cached bytecode alone, and writes none."""
        raise OSError(f"bytecode beside {path} is not trusted")


def trust_sources_alone(folder: str) -> None:
    """Take modules below `folder` from sources and extensions. Call it before the first import from there.

    The plugin's own `.venv` is left out: the digest covers all of it.
    """
    inside = folder.rstrip("/") + "/"
    own_packages = inside + ".venv/"

    def hook(path: str) -> FileFinder:
        if not (path + "/").startswith(inside) or path.startswith(own_packages):
            raise ImportError(path)
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceOnlyLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.pop(folder, None)
