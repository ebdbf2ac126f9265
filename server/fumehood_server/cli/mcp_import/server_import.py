"""Import of one server: what all of its steps share, and what they tell of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fumehood_sandbox import Level

from fumehood_server.cli.mcp_import.configuration_place import configuration_at, short_start
from fumehood_server.cli.mcp_import.granting import without
from fumehood_server.cli.mcp_import.import_settings import Import
from fumehood_server.cli.mcp_import.launchers import Launch
from fumehood_server.cli.mcp_import.node_version import old_node
from fumehood_server.cli.mcp_import.outcome import Outcome, now_of
from fumehood_server.cli.mcp_import.plan import PlannedSecret, ServerPlan
from fumehood_server.cli.mcp_import.tool_hints import hint_at_tools, told_of_unavailable
from fumehood_server.config import SidecarConfig
from fumehood_server.plugins import CheckReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerImport:
    """What is known of it before its server is resolved, and the outcome."""

    plan: ServerPlan
    run: Import
    outcome: Outcome
    config: SidecarConfig
    """As fumehood.toml was when the import began."""
    folder: Path
    """Of the plugin: absolute, without symlinks. It need not be there."""
    granted: Mapping[str, Any]
    """What fumehood.toml grants the plugin. Empty: it doesn't name it."""

    @property
    def path(self) -> Path:
        """Where fumehood.toml is, or will be."""
        return self.run.config_path

    @property
    def is_new(self) -> bool:
        """Whether fumehood.toml is yet to name the plugin. Its folder may be there."""
        return not self.granted

    @property
    def is_to_list_with_grants(self) -> bool:
        """Whether the command line has it asked for its tools with what it is granted."""
        return self.plan.entry.name in self.run.listed_with_grants

    @property
    def is_remote(self) -> bool:
        """Whether the server runs elsewhere, over HTTP."""
        return self.plan.remote is not None

    @property
    def held(self) -> list[PlannedSecret]:
        """Those of its secrets that fumehood.toml grants it."""
        return [] if self.is_new else [each for each in self.plan.secrets if each.name in self.granted["secrets"]]

    @property
    def lacking(self) -> list[PlannedSecret]:
        """Those that its entry in fumehood.toml doesn't grant."""
        return [] if self.is_new else [each for each in self.plan.secrets if each.name not in self.granted["secrets"]]

    def tell_granted(self, report: CheckReport, granted: Mapping[str, Any]) -> None:
        """Tell what it may do now, and which of its tools may be called so."""
        self.outcome.now = now_of(self.plan, granted)
        self.outcome.tell_tools(report, Level(str(granted["max_side_effects"])))
        self.outcome.notes += told_of_unavailable(report.tools)
        if self.is_remote:
            return
        config = configuration_at(self.path)
        plugin = next((each for each in config.plugins if each.path == self.folder), None)
        hint_at_tools(self.outcome, report.tools, plugin)
        short = short_start(config)
        self.outcome.notes += [short] if short else []
        node = self._old_node(report, granted)
        if node:
            self.outcome.notes.append(
                f"it runs with Node {node}, whose own fetch and https reach no granted host: they do from 22.21 and 24 "
                "on (docs/egress.md)"
            )

    def _old_node(self, report: CheckReport, granted: Mapping[str, Any]) -> str:
        """The version of a Node that is too old, where the server is to reach a host or may be."""
        command = self.plan.command
        reaches = granted["hosts"] or any(tool.side_effects is Level.EXTERNAL for tool in report.tools)
        program = "node" if command.launch is Launch.NPM else command.script
        return old_node(program, self.folder, self.config.sandbox) if reaches else ""

    def tell_prefix(self, prefix: str) -> None:
        """Tell that its tools have other names here, if they have."""
        if prefix:
            self.outcome.notes.append(f"its tools' names begin with {prefix}: another plugin has a tool of one name")

    def tell_left_out(self, secrets: Iterable[PlannedSecret]) -> None:
        """Tell how to grant the secrets that it was not granted."""
        self.outcome.todo_later += [
            without(each, self.path, self.config, asked_again=not self.is_remote) for each in secrets
        ]
