"""Plan of one server's import: its command line and variables expanded, its secrets set apart, its places found."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fumehood_server.cli.mcp_import.environment_file import read_environment_file
from fumehood_server.cli.mcp_import.host_configuration import ServerEntry
from fumehood_server.cli.mcp_import.inline_metadata import inline_dependencies
from fumehood_server.cli.mcp_import.known_servers import LackingSetting, lacking_settings
from fumehood_server.cli.mcp_import.launchers import Launch, NotImportableError, ServerCommand, parse_command
from fumehood_server.cli.mcp_import.left_out import LeftOut
from fumehood_server.cli.mcp_import.names import plugin_name, secret_name
from fumehood_server.cli.mcp_import.own_code import as_copied, is_code, project_around, refuse_left_out
from fumehood_server.cli.mcp_import.own_program import OwnProgram, find_program, is_interpreter
from fumehood_server.cli.mcp_import.places import NamedHost, NamedPath, RefusedPlace, absolute, find_places, with_value
from fumehood_server.cli.mcp_import.remote_plan import RemotePlan, plan_remote
from fumehood_server.cli.mcp_import.secret_values import looks_like_a_secret, named_like_a_secret, secret_argument
from fumehood_server.cli.mcp_import.variables import Expanded, Scope, expand
from fumehood_server.secrets.source import MIN_SECRET_BYTES

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_VARIABLES = {"PATH", "HOME", "LANG", "TMPDIR", "PWD", "SHELL", "USER"}
"""The sandbox has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSecret:
    """A variable whose value is kept by the operator and not by the plugin."""

    name: str
    variable: str
    value: str | None = field(repr=False)
    """None: it is in `environment`, or not known yet."""
    environment: str = ""
    """Variable of the sidecar's own environment that holds it, as the configuration had it."""
    by_look: bool = False
    """Nothing tells that it is a secret but the form of its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """What is made of one server. Nothing is fetched or written for it yet."""

    entry: ServerEntry
    name: str
    """Of the plugin."""
    command: ServerCommand
    """With what it starts and hands over, all expanded."""
    environment: Mapping[str, str]
    """Variables that are no secrets."""
    secrets: tuple[PlannedSecret, ...]
    paths: tuple[NamedPath, ...]
    hosts: tuple[NamedHost, ...]
    code: Path | None = None
    """A script's project on this machine, which is copied into the plugin."""
    left_out: LeftOut = field(default_factory=LeftOut)
    """What of it is not."""
    program: Path | None = None
    """A program of this machine that is copied into the plugin."""
    remote: RemotePlan | None = None
    """Where it is, if it runs elsewhere."""
    write: tuple[Path, ...] = ()
    """Folders that its host's own sandbox let it write."""
    refused_places: tuple[RefusedPlace, ...] = ()
    """Those that it names and that nobody is asked about."""
    notes: tuple[str, ...] = ()
    """What of its command line and variables doesn't hold here."""
    lacking: tuple[LackingSetting, ...] = ()
    """What is to be set before the server is of use."""

    @property
    def copied(self) -> tuple[str, ...]:
        """What of this machine is copied into the plugin, a sentence each."""
        places = (f"its code in {self.code}" if self.code else "", str(self.program or ""))
        return tuple(f"{each} is copied into the plugin, and pinned as it is now" for each in places if each)


def plan_server(entry: ServerEntry, scope: Scope, *, plain: Collection[str] = ()) -> ServerPlan:
    """Plan one server's import. `plain` are variables that are no secrets, whatever they look like.

    Raises:
        NotImportableError: it can't be imported, or not before something is changed or told.
    """
    if entry.problem:
        raise NotImportableError("malformed", entry.problem, "Correct it in the host's configuration.")
    if entry.transport:
        return _remote(entry, plan_remote(entry, scope, plain))
    notes: list[str] = []
    base = _base(entry, scope)
    command = parse_command(_text(entry.command, scope), [_text(each, scope) for each in entry.arguments])
    arguments = tuple(with_value(each, lambda text: absolute(text, base, scope.home)) for each in command.arguments)
    if command.launch is Launch.PROGRAM and base is not None and is_interpreter(command.script):
        arguments = tuple(with_value(each, lambda text: _file(text, base)) for each in arguments)
    index = secret_argument(arguments)
    if index is not None:
        what = f"argument {index + 1} of its program looks like a secret, and arguments are no place for one"
        todo = "Hand it over in `env`, if the server takes it there; then it is kept as a secret."
        raise NotImportableError("secret_in_arguments", what, todo)
    own = OwnProgram(command=command.script)
    if command.launch is Launch.PROGRAM:
        own = find_program(command.script, arguments, base)
    code = project_around(own.script) if own.script else None
    if code is not None:
        refuse_left_out(arguments, code)
    environment, secrets = _environment(entry, command, scope, base, plain, notes)
    places = find_places(
        (
            *((f"argument {number}", text) for number, text in enumerate(arguments, 1)),
            *((f"the variable {name}", text) for name, text in environment.items()),
            *(("its host's sandbox", f"https://{each}") for each in entry.sandbox_hosts if "*" not in each),
        ),
        scope.home,
    )
    paths = tuple(each for each in places.paths if code is None or not is_code(each.path, code))
    return ServerPlan(
        entry=entry,
        name=plugin_name(entry.name),
        command=ServerCommand(
            launch=command.launch,
            requirement=command.requirement,
            others=(*command.others, *_inline_dependencies(own)),
            script=own.command,
            arguments=arguments if code is None else tuple(as_copied(each, code) for each in arguments),
        ),
        environment=environment,
        secrets=secrets,
        paths=paths,
        hosts=tuple(places.hosts),
        code=code,
        program=own.copied,
        write=tuple(Path(_text(each, scope)) for each in entry.sandbox_write),
        refused_places=tuple(places.refused),
        notes=(*notes, *command.notes, *own.notes),
        lacking=lacking_settings(command, environment),
    )


def _file(text: str, base: Path) -> str:
    """A file beside which an interpreter would have been started, as an absolute path; else the text as it is."""
    try:
        return str(base / text) if text and (base / text).is_file() else text
    except (OSError, ValueError):  # too long for a path, or none
        return text


def _inline_dependencies(own: OwnProgram) -> tuple[str, ...]:
    return inline_dependencies(own.script) if own.script and own.command.startswith("python") else ()


def _remote(entry: ServerEntry, remote: RemotePlan) -> ServerPlan:
    """The plan of a server that runs elsewhere: `secrets` are its header fields', `hosts` its own."""
    notes = list(remote.notes)
    return ServerPlan(
        entry=entry,
        name=plugin_name(entry.name),
        command=ServerCommand(launch=Launch.REMOTE, script=remote.server.url),
        environment={},
        secrets=tuple(_secret(each.name, each.field, each.value, notes) for each in remote.secrets),
        paths=(),
        hosts=(NamedHost(remote.server.host, "its URL"),),
        remote=remote,
        notes=tuple(notes),
    )


def _text(text: str, scope: Scope) -> str:
    """A command or argument, which holds no secret and nothing that isn't known."""
    found = expand(text, scope)
    _check(found, "an argument")
    if found.secret and found.text:
        todo = "Hand it over in `env`, if the server takes it there; then it is kept as a secret."
        raise NotImportableError("secret_in_arguments", f"the secret {text} stands in its arguments", todo)
    return found.text


def _check(found: Expanded, where: str) -> None:
    """Refuse what is not known."""
    if found.problems:
        raise NotImportableError("variable", found.problems[0], "Then import it again.")
    if found.asked:
        what = f"{where} needs a value for the input {found.asked[0]}"
        raise NotImportableError("input", what, f"Give --input {found.asked[0]}=VALUE.")
    if found.unset:
        what = f"{where} needs the variable {found.unset[0]}, which is not set"
        raise NotImportableError("variable", what, "Set it, and import again.")


def _base(entry: ServerEntry, scope: Scope) -> Path | None:
    """Where relative paths start."""
    if not entry.working_folder:
        return scope.workspace
    folder = Path(_text(entry.working_folder, scope)).expanduser()
    if folder.is_absolute():
        return folder
    return scope.workspace / folder if scope.workspace else None


def _environment(
    entry: ServerEntry,
    command: ServerCommand,
    scope: Scope,
    base: Path | None,
    plain: Collection[str],
    notes: list[str],
) -> tuple[dict[str, str], tuple[PlannedSecret, ...]]:
    """Variables, and those of them that are secrets."""
    given: dict[str, Expanded] = {}
    if entry.environment_file:
        file = _environment_file(entry, scope, base)
        given |= {name: Expanded(value) for name, value in read_environment_file(file).items()}
    given |= {name: Expanded(value) for name, value in command.environment.items()}
    given |= {name: expand(value, scope) for name, value in entry.environment.items()}
    variables: dict[str, str] = {}
    secrets: list[PlannedSecret] = []
    for name, value in given.items():
        if not _VARIABLE.fullmatch(name):
            what = f'"{name}" is not the name of a variable'
            raise NotImportableError("malformed", what, "Correct it in the host's configuration.")
        if name in _OWN_VARIABLES:
            notes.append(f"{name} is not taken over: the sandbox has its own")
        elif value.problems:
            _check(value, f"the variable {name}")
        elif name not in plain and _is_secret(name, value):
            secrets.append(_secret(secret_name(plugin_name(entry.name), name), name, value, notes))
        elif value.unset and not value.asked:
            notes.append(f"{name} is not handed over: {', '.join(value.unset)} is not set")
        else:
            _check(value, f"the variable {name}")
            variables[name] = absolute(value.text, base, scope.home)
    return variables, tuple(secrets)


def environment_file_of(entry: ServerEntry, scope: Scope) -> Path | None:
    """The file that a server's variables are read from. None: it has none, or what its name stands for isn't known."""
    try:
        return _environment_file(entry, scope, _base(entry, scope)) if entry.environment_file else None
    except NotImportableError:
        return None


def _environment_file(entry: ServerEntry, scope: Scope, base: Path | None) -> Path:
    path = Path(_text(entry.environment_file, scope)).expanduser()
    return path if path.is_absolute() else (base or Path.cwd()) / path


def _is_secret(name: str, value: Expanded) -> bool:
    if value.secret:
        return True
    unknown = value.asked or value.unset
    return named_like_a_secret(name) if unknown else looks_like_a_secret(name, value.text)


def _secret(name: str, variable: str, value: Expanded, notes: list[str]) -> PlannedSecret:
    known = not value.asked and not value.unset
    if known and not value.variable and len(value.text.encode()) < MIN_SECRET_BYTES:
        short = f"{variable} has fewer than {MIN_SECRET_BYTES} bytes, too few to be kept as a secret"
        notes.append(f"{short}: give --plain {variable} if it is none")
    return PlannedSecret(
        name=name,
        variable=variable,
        value=value.text if known and not value.variable else None,
        environment=value.variable,
        by_look=not value.secret and not named_like_a_secret(variable),
    )
