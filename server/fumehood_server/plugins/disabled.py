"""Plugins that an operator has taken out of service: kept in a file of `state_dir`, for the next start."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fumehood_server.errors import ConfigError
from fumehood_server.model.plugin import PluginState, RegisteredPlugin
from fumehood_server.model.tool import Reason
from fumehood_server.plugins.registration import Registration

FILE_NAME = "disabled.json"
_VERSION = 1
_MAX_FILE_BYTES = 16 * 1024 * 1024
_HINT = "it says which plugins must not run: mend it; without it all of them do"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disabled:
    """What is known of a plugin's disabling."""

    by: str
    """As the journal calls who did it."""
    reason: str
    """In their words. May be empty."""
    since: int
    """POSIX time in seconds."""

    def as_reason(self, plugin: str) -> Reason:
        """Why its tools are not available."""
        why = f": {self.reason}" if self.reason else ""
        message = f"{plugin} was disabled by {self.by}{why}"
        return Reason("disabled", message, f"an operator enables it again: fumehood plugin enable {plugin}")


class DisabledPlugins:
    """Which plugins are disabled. For one event loop, but for `read`."""

    def __init__(self, path: Path) -> None:
        """None is, until the file is read."""
        self._path = path
        self._disabled: Mapping[str, Disabled] = {}
        self._saving = asyncio.Lock()

    def read(self) -> None:
        """Take up what the file holds. No file: none is disabled. Blocks.

        Raises:
            ConfigError: it can't be read, or is no such file. Plugins that may be disabled must not be served.
        """
        try:
            with self._path.open("rb") as file:
                data = file.read(_MAX_FILE_BYTES)
            fields = json.loads(data)
            if fields["version"] != _VERSION:
                raise ConfigError(self._path, "is of another version of the sidecar", hint=_HINT)
            self._disabled = {name: _disabled(each) for name, each in fields["plugins"].items()}
        except FileNotFoundError:
            self._disabled = {}
        except OSError as exc:
            raise ConfigError(self._path, exc.strerror or str(exc), hint=_HINT) from exc
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
            raise ConfigError(self._path, "does not say which plugins are disabled", hint=_HINT) from exc

    def find(self, plugin: str) -> Disabled | None:
        """How a plugin was disabled. None: it isn't."""
        return self._disabled.get(plugin)

    def disable(self, plugin: str, disabled: Disabled) -> None:
        """Say that it is."""
        self._disabled = {**self._disabled, plugin: disabled}

    def enable(self, plugin: str) -> bool:
        """Say that it isn't any more. Whether it was."""
        kept = {name: each for name, each in self._disabled.items() if name != plugin}
        was, self._disabled = len(kept) != len(self._disabled), kept
        return was

    async def save(self) -> None:
        """Have a restart find what is in force.

        Raises:
            OSError: it can't be written. What is in force stays so until a restart.
        """
        async with self._saving:  # in order
            fields = {"version": _VERSION, "plugins": {name: asdict(each) for name, each in self._disabled.items()}}
            await asyncio.to_thread(self._write, fields)

    def _write(self, fields: Mapping[str, object]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")  # of mode 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(fields, file, indent=1)
                file.write("\n")
                file.flush()
                os.fsync(descriptor)
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def in_force(self, registration: Registration) -> Registration:
        """The registration as it is to be served: with no tool that can be called, where its plugin is disabled."""
        plugin = registration.enabled or registration.plugin
        disabled = self.find(plugin.name)
        if disabled is None and registration.enabled is None:
            return registration
        if disabled is None:
            return replace(registration, plugin=plugin, enabled=None)
        return replace(registration, plugin=_out_of_service(plugin, disabled.as_reason(plugin.name)), enabled=plugin)


def _out_of_service(plugin: RegisteredPlugin, reason: Reason) -> RegisteredPlugin:
    return replace(
        plugin,
        state=PluginState.UNAVAILABLE if plugin.state is PluginState.SERVING else plugin.state,
        reasons=(reason, *plugin.reasons),
        tools=tuple(replace(tool, reasons=(reason, *tool.reasons)) for tool in plugin.tools),
        reads=tuple(replace(tool, reasons=(reason, *tool.reasons)) for tool in plugin.reads),
    )


def _disabled(fields: Mapping[str, object]) -> Disabled:
    by, reason, since = fields["by"], fields["reason"], fields["since"]
    if not (isinstance(by, str) and isinstance(reason, str) and isinstance(since, int)):
        raise TypeError
    return Disabled(by=by, reason=reason, since=since)
