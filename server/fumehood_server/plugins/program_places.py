"""Programs that lie where some plugin may write: what is outside of a plugin's folder isn't pinned."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fumehood_server.config.mounts import read_mounts
from fumehood_server.model.tool import Reason
from fumehood_server.plugins.launch.program import BuiltProgram


def writable_program(writable: Iterable[str], name: str, built: BuiltProgram) -> tuple[Reason, ...]:
    """Why the program of the plugin `name` isn't run, where plugins are granted writing to the paths `writable`.

    Whatever other path it has: a folder can be mounted in several places.
    """
    folders = {Path(path) for path in writable}
    if not folders:
        return ()
    mounts, shown = read_mounts(), {Path(mount.source) for mount in built.runtime if mount.source}
    for granted in sorted(folders):
        for source in sorted(shown):
            if mounts.overlap(granted, source.resolve()):
                message = f'{name} runs from "{source}", and a plugin is granted writing to "{granted}"'
                return (Reason("program_writable", message, "grant a narrower folder, or install it elsewhere"),)
    return ()
