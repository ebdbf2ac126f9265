"""What `plugin add` and `plugin upgrade` take: a folder, a wheel, a packed file, or `NAME==VERSION`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.cli.config_edit import names_plugin
from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.cli.output import note
from fumehood_server.config import SidecarConfig
from fumehood_server.plugins.lock import Origin
from fumehood_server.plugins.packages.download import DownloadError, download_wheel, is_requirement
from fumehood_server.plugins.packages.installed import Installed, install, uninstall


@dataclass(slots=True)
class PluginSource:
    """A plugin's folder, and the archive that it was unpacked from."""

    folder: Path
    origin: Origin | None = None
    kept: bool = False
    """Set it once the configuration names the folder: what was unpacked is removed otherwise."""

    @property
    def shape(self) -> dict[str, str] | None:
        """The archive, as `--json` tells it."""
        return {"file": self.origin.file, "digest": self.origin.digest} if self.origin else None


@contextmanager
def opened_source(text: str, config: SidecarConfig, *, quiet: bool = False) -> Iterator[PluginSource]:
    """The folder, within the block; a wheel or packed file is unpacked in `state_dir`.

    Raises:
        CommandError: a wheel can't be fetched.
        ConfigError: an archive can't be taken.
    """
    path = Path(text)
    if path.is_file():
        installed = install(path, config.server.state_dir)
    elif is_requirement(text) and not path.exists():
        installed = _fetch(text, config)
    else:
        yield PluginSource(path)
        return
    source = PluginSource(installed.folder, Origin(installed.archive, installed.archive_digest))
    try:
        if not quiet:
            note(f"{installed.archive} {installed.archive_digest}\n  in {installed.folder}")
        yield source
    finally:
        if installed.is_new and not source.kept and not _is_named(installed.folder, config):
            uninstall(installed.folder, config.server.state_dir)


def _is_named(folder: Path, config: SidecarConfig) -> bool:
    """Whether another command has put the same folder into the configuration meanwhile."""
    return config.path is not None and names_plugin(config.path, folder)


def _fetch(requirement: str, config: SidecarConfig) -> Installed:
    with tempfile.TemporaryDirectory(prefix="fumehood-wheel-") as name:
        try:
            wheel = download_wheel(requirement, Path(name))
        except DownloadError as error:
            raise CommandError(
                str(error),
                "Look at name and version, and at pip's configuration; or give the wheel's file.",
                code="DOWNLOAD_FAILED",
                status=ExitStatus.FAILED,
            ) from error
        return install(wheel, config.server.state_dir)
