"""The compiled half of `pydantic_core`: what validates and writes, without the Python around it.

Importing the package takes 30 ms and 2.5 MiB, all but 5 ms and 0.5 MiB of it for classes that type checkers read
(`pydantic_core.core_schema`), and each process that is forked for a call pays for those pages again. Whoever imports
the package afterwards, as `import pydantic` does, gets the module that is here.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib._bootstrap import module_from_spec  # importlib.util's own; that imports more
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from pydantic_core import PydanticSerializationError, SchemaValidator, ValidationError, from_json, to_json

__all__ = ["PydanticSerializationError", "SchemaValidator", "ValidationError", "from_json", "to_json"]

_PACKAGE = "pydantic_core"
_COMPILED = "pydantic_core._pydantic_core"


def _compiled() -> ModuleType:
    """The module that the package takes its names from; the package itself where that can't be had alone."""
    loaded = sys.modules.get(_PACKAGE) or sys.modules.get(_COMPILED)
    if loaded is not None:
        return loaded
    package = _found(_PACKAGE, None)
    spec = _found(_COMPILED, package.submodule_search_locations) if package is not None else None
    if spec is not None and spec.loader is not None:
        try:
            module = module_from_spec(spec)
            sys.modules[_COMPILED] = module
            spec.loader.exec_module(module)
        except Exception:  # noqa: BLE001 - what another release needs first, its package knows
            sys.modules.pop(_COMPILED, None)
        else:
            return module
    return import_module(_PACKAGE)


def _found(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            return spec
    return None


if not TYPE_CHECKING:
    _module = _compiled()
    PydanticSerializationError = _module.PydanticSerializationError
    SchemaValidator = _module.SchemaValidator
    ValidationError = _module.ValidationError
    from_json = _module.from_json
    to_json = _module.to_json
