"""Private sidecar with one plugin, and the stdio MCP server in front of it, until stdin ends."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fumehood_sandbox import Level

from fumehood_server.cli.dev_sidecar import DevGrants, DevSecret, DevSidecar
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.mcp_import.tool_hints import told_of_unavailable
from fumehood_server.cli.mcp_wrap.place_notes import place_notes
from fumehood_server.cli.mcp_wrap.wrapped_server import WrappedServer
from fumehood_server.cli.output import note, one_line
from fumehood_server.config import load_config
from fumehood_server.config.config import CONFIG_NAME
from fumehood_server.errors import ConfigError
from fumehood_server.model.extras import install_command
from fumehood_server.model.nearest import nearest
from fumehood_server.model.tool import ToolDefinition

CLOSED_WORLD = "openWorldHint: false"
"""The claim of a server's tool that reaches no network."""

MAX_SOCKET_BYTES = 107
"""Of a unix socket's path (unix(7))."""


class WrapSidecar(DevSidecar):
    """As that of `plugin dev`, with a pin: what differs from what was installed is refused."""

    pin_remedy = "look at what it is now, and pin it: `fumehood mcp wrap --update` with the same arguments"
    """Its plugin's folder is written anew at each start."""

    def forget_pin(self) -> None:
        """Keep it."""


def grants_for(
    server: WrappedServer,
    *,
    read: Sequence[Path],
    write: Sequence[Path],
    hosts: Sequence[str],
    allow: Sequence[str],
    level: Level,
    tool_levels: Mapping[str, Level],
    one_process: bool,
) -> DevGrants:
    """What the command line grants.

    Raises:
        CommandError: --allow fits no tool, or --level names none.
    """
    names = [tool.name for tool in server.tools]
    for pattern in allow:
        if not fnmatch.filter(names, pattern):
            raise CommandError(f"--allow {pattern} fits no tool of the server", nearest(pattern, names))
    for name, given in tool_levels.items():
        if name not in names:
            raise CommandError(f"--level {name}={given} names no tool of the server", nearest(name, names))
    allowed = [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in allow)]
    return DevGrants(
        max_side_effects=level,
        read=tuple(read),
        write=tuple(write),
        hosts=tuple(hosts),
        allowed_tools=allowed,
        secrets=tuple(DevSecret(name=each.name) for each in server.plan.secrets),
        tool_secrets=[(tool.name, _secrets_of(tool)) for tool in server.tools if _secrets_of(tool)],
        tool_levels=tool_levels,
        one_process=one_process,
    )


def serve_wrapped(server: WrappedServer, grants: DevGrants) -> int:
    """Serve its tools as `serve_stdio` does, and end its sidecar. Returns 0, or the signal's number that has ended it.

    Raises:
        CommandError: the sidecar did not start, or the MCP SDK is not installed.
    """
    from fumehood_server.mcp.errors import McpMissingError
    from fumehood_server.mcp.stdio import serve_stdio
    from fumehood_server.mcp.tool_choice import ToolChoice

    slot = server.slot
    if len(bytes(slot / "s")) > MAX_SOCKET_BYTES:
        raise CommandError(f"{slot}/s is too long for a socket's path", "Set XDG_STATE_HOME to a shorter one.")
    made = WrapSidecar(slot, server.plugin, grants, show_event, environments=server.environments)
    _check_grants(slot / CONFIG_NAME)
    with made as sidecar:
        watch = f"`fumehood approvals watch --address {sidecar.address}`"
        approving = f"{watch}; or `--allow TOOL` in the arguments of `fumehood mcp wrap` lets its calls run"
        try:
            return serve_stdio(
                sidecar.address, token="", credentials=None, choice=ToolChoice.of((), None), approving=approving
            )
        except McpMissingError as error:
            raise CommandError(
                str(error), f"Run {install_command('mcp')}.", code="EXTRA_MISSING", details={"module": error.module}
            ) from error


def _check_grants(config: Path) -> None:
    """Refuse in words what the sidecar's own process would end for.

    Raises:
        CommandError: a grant overlaps what no plugin may read or write, or can't be granted for another reason.
    """
    try:
        load_config(config)
    except ConfigError as error:
        todo = f"{error.hint[:1].upper()}{error.hint[1:]}. Its own files are in {config.parent.parent.parent}; "
        todo += "XDG_STATE_HOME names another place for them."
        raise CommandError(error.problem, todo, code="CONFIG_INVALID") from error


def show_event(event: Mapping[str, Any]) -> None:
    """Show what goes wrong, and what the server writes to its stderr, on ours: MCP hosts keep that as a log."""
    message = str(event.get("message") or event.get("event") or "")
    if event.get("event") == "plugin_log" or event.get("level") in {"warning", "error"}:
        note(one_line(f"fumehood: {message}"))


def say_what_holds(server: WrappedServer, grants: DevGrants) -> None:
    """Tell on stderr what the server may do, what needs an approval, and what it may lack or have for nothing."""
    plan = server.plan
    for each in (*told_of_unavailable(server.tools), *plan.notes, *place_notes(plan, grants)):
        note(one_line(f"fumehood: {each}"))
    for setting in plan.lacking:
        how = f"--env {setting.variable}=PATH, {setting.value}, and --write for its folder"
        note(f"fumehood: it is not handed {setting.variable}, without which {setting.why}: {how}")
    tools = [tool for tool in server.tools if not tool.never_called]
    levels = {tool.name: grants.tool_levels.get(tool.name, tool.side_effects) for tool in tools}
    asks = [
        name
        for name, level in levels.items()
        if not Level.READ.allows(level) and grants.max_side_effects.allows(level) and name not in grants.allowed_tools
    ]
    unsaid = [tool for tool in tools if tool.name not in grants.tool_levels]
    reading = [tool.name for tool in unsaid if Level.READ.allows(tool.side_effects) and CLOSED_WORLD not in tool.claims]
    if reading:
        needs = f"--level {reading[0]}=external" + ("" if grants.hosts else " --network NAME:PORT")
        note(f"fumehood: {', '.join(reading)}, by the server's word, only read, and so reach no network: {needs}")
    silent = [tool.name for tool in unsaid if not tool.claims]
    if silent:
        why = "counts as external, since the server says nothing of its effects"
        note(f"fumehood: each of {', '.join(silent)} {why}: --level {silent[0]}=LEVEL")
    if asks:
        note(f"fumehood: each call of {', '.join(asks)} needs an approval: your MCP client asks you, or --allow TOOL")


def _secrets_of(tool: ToolDefinition) -> tuple[str, ...]:
    return tuple(text.partition(":")[2] for text in tool.requires if text.startswith("secret:"))
