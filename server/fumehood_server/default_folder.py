"""Where a sidecar without a configuration keeps its state, by the XDG base directories.

Imported by clients too, for which the configuration would take too long to import.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_MANIFEST_NAME = "plugin.toml"
_NAME_CHARS = 24
_DIGEST_CHARS = 12


def default_folder(current: Path) -> Path:
    """The folder in which state, lock and socket lie when there is no fumehood.toml in `current`.

    It is `current` itself; but where that lies in a plugin's folder, one for that plugin in `$XDG_STATE_HOME`: nothing
    is written into a plugin.
    """
    current = current.resolve()
    for folder in (current, *current.parents):
        if (folder / _MANIFEST_NAME).is_file():
            digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:_DIGEST_CHARS]
            return _state_home() / "fumehood" / f"{folder.name[:_NAME_CHARS]}-{digest}"
    return current


def _state_home() -> Path:
    """The XDG Base Directory Specification ignores a relative path."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    return named if named.is_absolute() else Path(os.path.expanduser("~")) / ".local" / "state"  # noqa: PTH111 - never raises
