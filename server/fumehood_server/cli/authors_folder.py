"""Names a plugin's own folder in what it says while it runs from a copy, which is gone when its author reads that."""

from __future__ import annotations

from pathlib import Path

from fumehood_server.model.plugin import WorkerSpec


class AuthorsFolder:
    """The folder that stands for a plugin's copies in texts."""

    def __init__(self, folder: Path) -> None:
        """`folder` is as reports name it: absolute."""
        self._folder = str(folder)
        self._copies: dict[str, str] = {}
        """The path of each copy, and how it begins."""

    def note_copy(self, spec: WorkerSpec) -> None:
        """Take the copy that a worker is about to run from: what is mounted under the name of its digest."""
        name = spec.plugin_digest.replace(":", "-")
        for mount in spec.policy.runtime:
            path = Path(mount.target)
            if path.name == name:
                # TMPDIR/fumehood-check-XXXXXXXX/plugins/sha256-HEX: the beginning is without what is by chance.
                self._copies[mount.target] = str(path.parent.parent).rpartition("-")[0] + "-"

    def named(self, text: str) -> str:
        """The text with the folder in place of each copy, also where a line was cut off within the copy's path."""
        for copy, beginning in self._copies.items():
            if beginning in text:
                lines = text.replace(copy, self._folder).split("\n")
                text = "\n".join(self._uncut(line, copy, beginning) for line in lines)
        return text

    def _uncut(self, line: str, copy: str, beginning: str) -> str:
        start = line.rfind(beginning)
        return line[:start] + self._folder if start >= 0 and copy.startswith(line[start:]) else line
