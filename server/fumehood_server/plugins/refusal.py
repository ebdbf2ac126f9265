"""The error for a plugin that can't be served as it is."""

from __future__ import annotations

from fumehood_server.errors import ConfigError, FumehoodError
from fumehood_server.model.tool import Reason


class PluginRefusedError(FumehoodError):
    """A plugin can't be served as it is. Its author or the operator must act; `reasons` say on what."""

    def __init__(self, name: str, reasons: tuple[Reason, ...], problems: tuple[ConfigError, ...] = ()) -> None:
        """`problems` are those of its files, where they are the reason."""
        super().__init__("; ".join(reason.message for reason in reasons))
        self.name = name
        self.reasons = reasons
        self.problems = problems


def invalid(name: str, problems: tuple[ConfigError, ...]) -> PluginRefusedError:
    """The error for problems of a plugin's files."""
    reasons = tuple(Reason("plugin_invalid", str(each), "mend it and reload the plugin") for each in problems)
    return PluginRefusedError(name, reasons, problems)
