"""The path view: what stands for a policy's file system where nothing can be mounted, real paths and links to them.

A program sees the machine's own tree, of which Landlock lets it open what the policy names. Three kinds of paths need
more than a rule: the private scratch folders; mounts whose path inside differs from the one outside; and folders that
the policy hides within others that it shows.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fumehood_sandbox.errors import LaunchError, SandboxUnavailableError
from fumehood_sandbox.outside.bubblewrap_arguments import SCRATCH
from fumehood_sandbox.outside.grants import is_within
from fumehood_sandbox.policy import Mount
from fumehood_sandbox.program import Executable, Program

_TRAVERSABLE = 0o711
_PREFIX = "fumehood-"


@dataclass(frozen=True, slots=True)
class PathView:
    """The folders of one sandbox, and what takes the place of each path that exists only inside."""

    base: str
    """Holds the two below. The launcher's; removed by the group supervisor."""
    scratch: str
    """The program's own, rights 0700."""
    links: str
    """The folder of links to what lies elsewhere; the program can't change it."""
    moved: tuple[str, ...]
    """Paths inside that are links in `links`."""
    kept: tuple[str, ...]
    """Paths that are the same inside and outside, also where they lie in /tmp."""

    def translate_path(self, path: str) -> str:
        """The path to use for one that the policy or the program names."""
        if is_within(path, self.moved):
            return self.links + path
        if is_within(path, self.kept):
            return path
        for folder in SCRATCH:
            if is_within(path, (folder,)):
                return self.scratch + path[len(folder) :]
        leads_to_moved = any(is_within(each, (path,)) for each in self.moved)
        return self.links + path if leads_to_moved else path

    def translate_environment(self, variables: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The variables with their paths replaced, also in lists such as PATH, and TMPDIR for the scratch folder."""
        replaced = {name: ":".join(map(self.translate_path, value.split(":"))) for name, value in variables}
        return {"TMPDIR": self.scratch, **replaced}

    def translate_program(self, program: Program) -> Program:
        """The program with its paths replaced.

        Its further arguments are replaced only where one begins with a moved mount's path: /tmp in an argument is data.
        """
        if isinstance(program, Executable):
            name, *others = program.argv
            path = self.translate_path(name) if name.startswith("/") else name
            return Executable((path, *self._translate_arguments(others)))
        folders = tuple(map(self.translate_path, program.path))
        return replace(program, path=folders, argv=tuple(self._translate_arguments(program.argv)))

    def _translate_arguments(self, arguments: Iterable[str]) -> Iterator[str]:
        return (self.translate_path(each) if is_within(each, self.moved) else each for each in arguments)


def make_path_view(runtime: tuple[Mount, ...], grants: tuple[str, ...], owner: tuple[int, int] | None) -> PathView:
    """Make the folders in the launcher's own temporary folder, the scratch folder for `owner`, None being oneself.

    Raises:
        SandboxUnavailableError: a mount lies within one that is shown elsewhere, so that no link can show it; or the
            folders would lie in what the program is given.
        LaunchError: the folders can't be made.
    """
    sources = _sources_by_target(runtime)
    shown = (*(mount.source for mount in runtime if mount.source), *grants)
    base = ""
    try:
        base = tempfile.mkdtemp(prefix=_PREFIX)
        _check_apart(base, shown)
        scratch, view = f"{base}/scratch", f"{base}/view"
        Path(base).chmod(_TRAVERSABLE)
        Path(scratch).mkdir(mode=0o700)
        _make_open(Path(view))
        if owner is not None:
            _give_away(scratch, owner)
        for target, source in sources.items():
            link = Path(view + target)
            for folder in reversed(link.parents):
                if folder.is_relative_to(view) and not folder.exists():
                    _make_open(folder)
            link.symlink_to(source)
    except BaseException as error:
        if base:
            with contextlib.suppress(OSError):
                discard(base, f"{base}/scratch", f"{base}/view")
        if isinstance(error, OSError):
            raise LaunchError("scratch", str(error.strerror or error), path=base, errno=error.errno or 0) from error
        raise
    kept = (*(mount.target for mount in runtime if mount.source == mount.target), *grants)
    return PathView(base, scratch, view, tuple(sources), kept)


def _make_open(folder: Path) -> None:
    """Make a folder that others may pass through, whatever the umask is."""
    folder.mkdir()
    folder.chmod(0o755)


def _check_apart(base: str, shown: Iterable[str]) -> None:
    """Else one program could read what others have in scratch, or turn the links by which they find their modules."""
    real = os.path.realpath(base)
    for path in shown:
        if is_within(real, (os.path.realpath(path),)):
            raise SandboxUnavailableError(
                "scratch",
                f"the launcher's temporary folder lies in {path}, which the policy shows to the program",
                "name another one by TMPDIR, which nothing is granted of",
            )


def _give_away(scratch: str, owner: tuple[int, int]) -> None:
    try:
        os.chown(scratch, *owner)
    except PermissionError as error:
        raise SandboxUnavailableError(
            "identity",
            "root may not give a folder to the program's user",
            "give the container CAP_CHOWN, CAP_SETUID, CAP_SETGID and CAP_KILL, or run the sidecar as an ordinary user",
        ) from error


def discard(base: str, scratch: str, view: str) -> None:
    """Remove the folders of a sandbox of which nothing runs, as far as that goes at once."""
    from fumehood_sandbox.landlock_only.removal import empty  # noqa: PLC0415 - only where the supervisor could not do it

    for folder in (scratch, view):
        with contextlib.suppress(FileNotFoundError):
            empty(folder, seconds=1.0)
            Path(folder).rmdir()
    Path(base).rmdir()


def _sources_by_target(runtime: tuple[Mount, ...]) -> dict[str, str]:
    """What is to be shown elsewhere, by its path inside."""
    links = {mount.target: mount.source for mount in runtime if mount.source and mount.source != mount.target}
    for target in links:
        for above in links:
            if target != above and is_within(target, (above,)):
                raise SandboxUnavailableError(
                    "mounts",
                    f"{target} lies within {above}, which is a link where there is no mount namespace",
                    "mount both side by side, or run where user namespaces are allowed",
                )
    return links


def runtime_rules(runtime: tuple[Mount, ...]) -> tuple[list[str], list[str]]:
    """Paths that may be read and run, and paths that may only be listed: folders in which something is hidden.

    Landlock's rules add up: what is allowed of a folder can't be taken away within it. So a folder with something
    hidden is listed, and all in it but that is allowed one by one. Links are left out: what they lead to has a rule of
    its own where the policy names it. The names of what is hidden can be seen, its content can't.
    """
    shown = [mount for mount in runtime if mount.source]
    hidden = {_real(mount.target, shown) for mount in runtime if not mount.source}
    # What a moved mount covers inside must not be reached by its own path.
    hidden |= {
        mount.target
        for mount in shown
        if mount.source != mount.target and any(mount.target.startswith(other.target + "/") for other in shown)
    }
    run: list[str] = []
    listed: list[str] = []
    for mount in shown:
        _allow(os.path.realpath(mount.source), {os.path.realpath(each) for each in hidden}, run, listed)
    return run, listed


def _allow(path: str, hidden: set[str], run: list[str], listed: list[str]) -> None:
    if path in hidden:
        return
    if not any(each.startswith(path + "/") for each in hidden):
        run.append(path)
        return
    listed.append(path)
    with os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_symlink():
                _allow(entry.path, hidden, run, listed)


def _real(target: str, shown: list[Mount]) -> str:
    """Where a path of the sandbox lies outside."""
    best = max(
        (mount for mount in shown if target == mount.target or target.startswith(mount.target + "/")),
        key=lambda mount: len(mount.target),
        default=None,
    )
    if best is None:
        return target
    return posixpath.normpath(best.source + target[len(best.target) :])
