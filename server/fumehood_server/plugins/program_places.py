"""Programs that lie where some plugin may write: what is outside of a plugin's folder isn't pinned."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fumehood_server.config.mounts import read_mounts
from fumehood_server.model.tool import Reason
from fumehood_server.plugins.launch.program import BuiltProgram


def writable_program(writable: Iterable[str], name: str, built: BuiltProgram) -> tuple[Reason, ...]:
    """Why the program of the plugin `name` isn't run, where plugins are granted writing to the paths `writable`."""
    folders = {Path(path) for path in writable}
    shown = {Path(mount.source) for mount in built.runtime if mount.source} if folders else set()
    mounts = read_mounts()
    for granted in sorted(folders):
        for source in sorted(shown):
            real = source.resolve()
            if real.is_relative_to(granted) or granted.is_relative_to(real) or mounts.overlap(granted, real):
                message = f'{name} runs from "{source}", and a plugin is granted writing to "{granted}"'
                return (Reason("program_writable", message, "grant a narrower folder, or install it elsewhere"),)
    return ()
