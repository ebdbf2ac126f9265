"""Parser of MCP hosts' configurations: Claude Desktop, VS Code, Cursor and Claude Code, each with its own keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.mcp_import.claude_code_scopes import named_projects, read_local_scope
from fumehood_server.cli.mcp_import.json_document import JsonDocument, read_json_document

MAX_SERVERS = 256
"""Far more than any host starts."""
MAX_ARGUMENTS = 63
"""A manifest's command holds 64 with its program."""
MAX_VARIABLES = 64
MAX_TEXT = 32 * 1024


class Host(StrEnum):
    """The programs whose configurations are read."""

    CLAUDE_DESKTOP = "claude-desktop"
    VSCODE = "vscode"
    CURSOR = "cursor"
    CLAUDE_CODE = "claude-code"


HOST_NAMES = {
    Host.CLAUDE_DESKTOP: "Claude Desktop",
    Host.VSCODE: "VS Code",
    Host.CURSOR: "Cursor",
    Host.CLAUDE_CODE: "Claude Code",
}
_STDIO_TYPES = ("", "stdio", "local")
_TAKEN = {"type", "command", "args", "env", "envFile", "cwd", "url", "serverUrl", "disabled"}
_REMOTE_KEYS = {"headersHelper", "auth", "oauth"}
_NOT_TAKEN = {
    *("alwaysAllow", "autoApprove", "alwaysLoad", "timeout", "dev", "gallery", "version", "description", "name"),
    *("sandbox", "sandboxEnabled", "icon", "tools", "note"),
}
"""Keys that hosts know and that mean nothing here, or are asked for anew: approvals above all."""


@dataclass(frozen=True, slots=True)
class InputVariable:
    """One element of VS Code's `inputs`."""

    name: str
    description: str
    password: bool
    default: str | None
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    """One server as its host's configuration has it, with nothing expanded."""

    name: str
    command: str = ""
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    environment_file: str = ""
    working_folder: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Header fields of a server over HTTP."""
    transport: str = ""
    """How a server that runs elsewhere is reached. Empty: it is one on stdio."""
    disabled: bool = False
    sandboxed: bool = False
    """Whether the host holds it in a sandbox of its own (VS Code)."""
    sandbox_write: tuple[str, ...] = ()
    sandbox_hosts: tuple[str, ...] = ()
    not_taken: tuple[str, ...] = ()
    """Keys that hosts know and that have no effect here."""
    unknown: tuple[str, ...] = ()
    problem: str = ""
    """Why it can't be read at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfiguration:
    """A whole file."""

    path: Path
    host: Host
    """The program whose file it is."""
    servers: tuple[ServerEntry, ...]
    inputs: Mapping[str, InputVariable]
    workspace: Path | None
    """The folder that ${workspaceFolder} stands for, and where relative paths start. None: not known."""
    unknown: tuple[str, ...]
    twice: tuple[str, ...]
    other_projects: tuple[str, ...] = ()
    """Folders whose servers are not taken: Claude Code has each of them in its own folder alone."""
    is_assumed: bool = False
    """Whether neither somebody nor the file itself tells `host`, which it is for want of anything else."""


def read_host_configuration(
    path: Path, *, host: Host | None = None, workspace: Path | None = None
) -> HostConfiguration:
    """Read the servers of a file. One that can't be read says why, and doesn't stop the others.

    `host` and `workspace` are those that the file's name and place tell where they are None. Of Claude Code's projects
    the one in `workspace`, or in the working directory, has its servers taken, before the user's of the same name.

    Raises:
        CommandError: the file can't be read, or holds no servers.
    """
    path = path.absolute()
    document = read_json_document(path)
    local = read_local_scope(document.value, workspace or Path.cwd())
    key, servers, inputs, rest = _find_servers(path, document, has_local=bool(local.servers or local.others))
    servers = {**servers, **local.servers}
    if local.servers:
        workspace = workspace or Path.cwd()
    if local.others and not servers:
        raise CommandError(
            f"{path} has servers of other projects alone: {named_projects(local.others)}",
            "Give --workspace FOLDER, or run this in the folder of the one that you mean.",
            code="NOT_FOUND",
        )
    if len(servers) > MAX_SERVERS:
        raise _invalid(f"{path} names {len(servers)} servers, and at most {MAX_SERVERS} are read")
    told = host or _host_of(path, key, servers)
    found = told or Host.CLAUDE_CODE
    return HostConfiguration(
        path=path,
        host=found,
        servers=tuple(_read_server(name, table) for name, table in servers.items()),
        inputs=dict(_read_inputs(inputs)),
        workspace=workspace.absolute() if workspace else _workspace_of(path, found),
        unknown=tuple(sorted(rest)),
        twice=tuple(document.twice),
        other_projects=local.others,
        is_assumed=told is None and not (local.servers or local.others),
    )


def _find_servers(
    path: Path, document: JsonDocument, *, has_local: bool
) -> tuple[str, Mapping[str, Any], object, set[str]]:
    """The table of servers with its key, what `inputs` holds, and the keys beside them that aren't known."""
    value = document.value
    if isinstance(value.get("mcp"), dict) and isinstance(value["mcp"].get("servers"), dict):
        return "servers", value["mcp"]["servers"], value["mcp"].get("inputs"), set()  # VS Code's settings.json
    for key in ("mcpServers", "servers"):
        table = value.get(key)
        if isinstance(table, dict):
            # Claude Code's and Claude Desktop's files hold much else that is none of ours.
            shared = path.name in {".claude.json", "settings.json", "claude_desktop_config.json"}
            rest = set() if shared or has_local else set(value) - {key, "inputs", "$schema"}
            return key, table, value.get("inputs"), rest
    if has_local:
        return "mcpServers", {}, None, set()
    raise _invalid(f"{path} has neither `mcpServers` nor `servers`")


def _host_of(path: Path, key: str, servers: Mapping[str, Any]) -> Host | None:
    if key == "servers":
        return Host.VSCODE
    if path.name == "claude_desktop_config.json":
        return Host.CLAUDE_DESKTOP
    if path.parent.name == ".cursor":
        return Host.CURSOR
    if path.name in {".mcp.json", ".claude.json"}:
        return Host.CLAUDE_CODE
    text = str(list(servers.values()))
    cursor = any(each in text for each in ("${env:", "${workspaceFolder", "${userHome}", "envFile"))
    return Host.CURSOR if cursor else None


def _workspace_of(path: Path, host: Host) -> Path | None:
    home = Path.home()
    if path.parent.name in {".vscode", ".cursor"} and path.parent.parent != home:
        return path.parent.parent
    if host is Host.CLAUDE_CODE and path.name == ".mcp.json":
        return path.parent
    return None


def _read_inputs(inputs: object) -> Iterator[tuple[str, InputVariable]]:
    for table in inputs if isinstance(inputs, list) else ():
        if not (isinstance(table, dict) and isinstance(table.get("id"), str)):
            continue
        options = table.get("options")
        listed = options if isinstance(options, list) else []
        words = [each.get("value") if isinstance(each, dict) else each for each in listed]
        default = table.get("default")
        yield (
            table["id"],
            InputVariable(
                name=table["id"],
                description=str(table.get("description") or ""),
                password=table.get("password") is True,
                default=default if isinstance(default, str) else None,
                options=tuple(each for each in words if isinstance(each, str)),
            ),
        )


def _read_server(name: str, table: object) -> ServerEntry:
    try:
        return _server(name, table)
    except _ShapeError as error:
        return ServerEntry(name=name, problem=str(error))


def _server(name: str, table: object) -> ServerEntry:
    if not isinstance(table, dict):
        raise _ShapeError("it is no JSON object")
    kind = _text(table, "type")
    url = _text(table, "url") or _text(table, "serverUrl")
    remote = bool(url) or kind not in _STDIO_TYPES
    command = _text(table, "command")
    if not remote and not command:
        raise _ShapeError("it has neither `command` nor `url`")
    keys = set(table) - _TAKEN - ({"headers"} if remote else set())
    known = _NOT_TAKEN | (_REMOTE_KEYS if remote else set())
    sandbox = table.get("sandbox")
    return ServerEntry(
        name=name,
        command=command,
        arguments=_arguments(table),
        environment=_texts(table, "env"),
        environment_file=_text(table, "envFile"),
        working_folder=_text(table, "cwd"),
        url=url,
        headers=_texts(table, "headers") if remote else {},
        transport=(kind or "http") if remote else "",
        disabled=table.get("disabled") is True,
        sandboxed=table.get("sandboxEnabled") is True,
        sandbox_write=_listed(sandbox, "filesystem", "allowWrite"),
        sandbox_hosts=_listed(sandbox, "network", "allowedDomains"),
        not_taken=tuple(sorted(keys & known)),
        unknown=tuple(sorted(keys - known)),
    )


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _ShapeError(f"`{key}` is no text")
    return _checked(value, key)


def _checked(value: str, key: str) -> str:
    if len(value) > MAX_TEXT:
        raise _ShapeError(f"`{key}` holds a text of {len(value)} characters")
    if "\0" in value:
        raise _ShapeError(f"`{key}` holds NUL, which no argument and no variable can")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _ShapeError(f"`{key}` holds a lone surrogate, which no text can") from None
    return value


def _arguments(table: Mapping[str, Any]) -> tuple[str, ...]:
    value = table.get("args")
    if value is None:
        return ()
    if not (isinstance(value, list) and all(isinstance(each, str | int | float) for each in value)):
        raise _ShapeError("`args` is no list of texts")
    if len(value) > MAX_ARGUMENTS:
        raise _ShapeError(f"`args` has {len(value)} elements, and at most {MAX_ARGUMENTS} are taken")
    return tuple(_checked(each if isinstance(each, str) else f"{each}", "args") for each in value)


def _texts(table: Mapping[str, Any], key: str) -> dict[str, str]:
    value = table.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > MAX_VARIABLES:
        raise _ShapeError(f"`{key}` is no object of at most {MAX_VARIABLES} texts")
    found = {}
    for name, text in value.items():
        if text is None:  # VS Code: taken out of the environment, in which nothing is here
            continue
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise _ShapeError(f"`{key}.{name}` is no text")
        found[name] = _checked(text if isinstance(text, str) else f"{text}", key)
    return found


def _listed(sandbox: object, *keys: str) -> tuple[str, ...]:
    value = sandbox
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    listed: Sequence[object] = value if isinstance(value, list) else ()
    return tuple(each for each in listed if isinstance(each, str))


class _ShapeError(ValueError):
    """A server's table is not what its host would take."""


def _invalid(what: str) -> CommandError:
    return CommandError(
        what,
        "Name the configuration of Claude Desktop, VS Code, Cursor or Claude Code that holds your servers.",
        code="CONFIG_INVALID",
    )
