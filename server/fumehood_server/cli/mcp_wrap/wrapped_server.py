"""Plugin of a wrapped MCP server, kept in the user's state folder by digest of its command line: installed once."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fumehood_server.cli.failure import CommandError, ExitStatus
from fumehood_server.cli.folder_check import propose_folder_pin
from fumehood_server.cli.mcp_import.content import resolve_server
from fumehood_server.cli.mcp_import.first_start import ASKED_WITHOUT, wants_build_hosts
from fumehood_server.cli.mcp_import.host_configuration import Host, ServerEntry
from fumehood_server.cli.mcp_import.launchers import NotImportableError, program_name
from fumehood_server.cli.mcp_import.own_code import say_left_out
from fumehood_server.cli.mcp_import.plan import PlannedSecret, ServerPlan, plan_server
from fumehood_server.cli.mcp_import.secret_values import looks_like_a_secret
from fumehood_server.cli.mcp_import.shown_text import argument_secrets, hide, public_urls, shown
from fumehood_server.cli.mcp_import.variables import Scope
from fumehood_server.cli.plugin_builds import build_for
from fumehood_server.config import SidecarConfig, load_config
from fumehood_server.config.config import CONFIG_NAME, LOCK_NAME
from fumehood_server.model.tool import ToolDefinition
from fumehood_server.plugins.lock import read_lock
from fumehood_server.plugins.manifest import read_manifest

WRAP_NAME = "wrap"
_PLUGIN = "plugin"
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=(?!=)")
"""Of a variable, by `env`; no version of a package."""
_MAX_SLOTS = 64
"""Clients on one machine that start the same server at once."""
_NO_FOLDER = Path("/dev/null")
"""Holds nothing."""
_CONFIG = """\
# Of `fumehood mcp wrap`: where what it installed is kept. What a server is granted, its command line says each time.
[server]
listen = ["unix:s"]
state_dir = "state"
start_timeout_s = 60  # of what was installed just now, from a cold disk
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedCommand:
    """A command line to wrap, and what it is handed."""

    command: tuple[str, ...]
    variables: Mapping[str, str]
    secrets: Sequence[str]
    """Names of variables whose values are secrets."""

    def digest(self, folder: Path | None) -> str:
        """What tells its plugin from others: not the values of secrets. `folder` is what its paths start at, if any."""
        content = [self.command, sorted(self.variables.items()), sorted(self.secrets), str(folder or "")]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    @property
    def program(self) -> str:
        """The name of what it starts, fit to be shown: of what is no program, the first word at most."""
        word = self.command[0]
        if shutil.which(word) is None:
            word = next(iter(word.split()), "").partition("=")[0]
        return shown(word if "://" in word else program_name(word))

    def without_secrets(self, text: str) -> str:
        """A text that quotes some of it, or that others have written, fit to be shown."""
        values = {os.environ.get(each, "") for each in self.secrets} | argument_secrets(self.command)
        values |= {value for name, value in self.variables.items() if looks_like_a_secret(name, value)}
        return public_urls(hide(text, values))


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedServer:
    """An installed and pinned server, for one client."""

    folder: Path
    """Of everything that is kept for it."""
    slot: Path
    """This client's own: the pin and the plugin as they are now, and the state and journal of its sidecar."""
    plan: ServerPlan
    tools: tuple[ToolDefinition, ...]

    @property
    def plugin(self) -> Path:
        """The plugin's own folder."""
        return self.slot / _PLUGIN

    @property
    def environments(self) -> Path:
        """Where what it is installed from lies."""
        return self.folder / "state" / "environments"


def state_folder() -> Path:
    """The user's, by the XDG Base Directory Specification, which has relative paths ignored."""
    named = os.environ.get("XDG_STATE_HOME", "")
    home = Path(named) if named.startswith("/") else Path.home() / ".local" / "state"
    return home / "fumehood" / WRAP_NAME


@contextlib.contextmanager
def installed_server(wrapped: WrappedCommand, say: Callable[[str], None], *, update: bool) -> Iterator[WrappedServer]:
    """Install and pin the server of this command line, unless that was done before, and copy it for one client.

    Another client's update changes nothing of the copy.

    Raises:
        CommandError: it can't be wrapped, installed or started, or too many clients run it.
        OSError: the state folder can't be written.
    """
    with contextlib.ExitStack() as held:
        try:
            plan = _plan(wrapped, Path.cwd())
            folder = state_folder() / wrapped.digest(Path.cwd() if _is_relative(wrapped, plan) else None)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(folder / "lock"):
                (folder / CONFIG_NAME).write_text(_CONFIG)
                config = load_config(folder / CONFIG_NAME)
                with _set_aside(folder) if update else contextlib.nullcontext():
                    tools = _pinned(folder, plan)
                    if tools is None:
                        tools = _install(folder, plan, config, say)
                slot = held.enter_context(_own_slot(folder))
                _copy(folder, slot)
        except NotImportableError as error:
            raise _not_wrapped(wrapped, error.code, error.reason, error.todo) from error
        except CommandError as error:  # an installer's, say, which quotes what it was called with
            what, todo = (wrapped.without_secrets(each) for each in (error.what, error.todo))
            raise CommandError(what, todo, code=error.code, status=error.status, details=error.details) from error
        yield WrappedServer(folder=folder, slot=slot, plan=plan, tools=tools)


def _not_wrapped(wrapped: WrappedCommand, reason: str, what: str, todo: str) -> CommandError:
    return CommandError(
        f"{wrapped.program} can't be wrapped: {wrapped.without_secrets(what)}",
        wrapped.without_secrets(todo),
        code="NOT_WRAPPED",
        status=ExitStatus.FAILED,
        details={"reason": reason},
    )


def _plan(wrapped: WrappedCommand, folder: Path) -> ServerPlan:
    """The plan of a command line whose relative paths start at `folder`."""
    if "://" in wrapped.command[0]:
        what = "it is an address, and `fumehood mcp wrap` takes servers on stdio"
        todo = 'Name one over HTTP by "url" in an mcp.json, and take it over by `fumehood mcp import FILE`.'
        raise NotImportableError("transport", what, todo)
    if program_name(wrapped.command[0]) == "fumehood":
        what = "it is Fumehood itself, and no MCP server of another's"
        raise NotImportableError("own_entry", what, "Name the command behind --, or leave the entry as it is.")
    entry = ServerEntry(
        name=_name(wrapped.command), command=wrapped.command[0], arguments=wrapped.command[1:],
        environment=dict(wrapped.variables),
    )  # fmt: skip
    # The shell, or the MCP host, has expanded what is to be expanded; what is no secret was said to be none.
    scope = Scope(host=Host.CLAUDE_DESKTOP, environment={}, workspace=folder)
    plan = plan_server(entry, scope, plain=tuple(wrapped.variables))
    for each in plan.secrets:  # which `env NAME=VALUE` sets, the command's first words
        what = f"its command line sets {each.variable}, which looks like a secret"
        todo = f"Leave it out there, and give --secret {each.variable}; or --env {each.variable}=VALUE, if it is none."
        raise NotImportableError("secret_in_arguments", what, todo)
    secrets = tuple(PlannedSecret(name=each, variable=each, value=None, environment=each) for each in wrapped.secrets)
    return replace(plan, secrets=secrets)


def _is_relative(wrapped: WrappedCommand, plan: ServerPlan) -> bool:
    """Whether anything is found by the working directory: another plan is made of the command line elsewhere."""
    try:
        other = _plan(wrapped, _NO_FOLDER)
    except NotImportableError:
        return True
    here, there = ((each.command, each.environment, each.code, each.program) for each in (plan, other))
    return here != there


def _name(command: Sequence[str]) -> str:
    """What the plugin is called: by the first word that names the server and no launcher or option."""
    words = [each for each in command[1:] if not each.startswith(("-", "/", ".")) and not _ASSIGNMENT.match(each)]
    word = words[0] if words else program_name(command[0])
    return word.removeprefix("@modelcontextprotocol/").rpartition("@")[0] or word.rpartition("/")[2]


def _pinned(folder: Path, plan: ServerPlan) -> tuple[ToolDefinition, ...] | None:
    """Its tools, which may be none, of a server with resources. None: it isn't installed."""
    pinned = read_lock(folder / LOCK_NAME).plugins.get(plan.name)
    return pinned.tools if pinned is not None and (folder / _PLUGIN).is_dir() else None


def _install(
    folder: Path, plan: ServerPlan, config: SidecarConfig, say: Callable[[str], None]
) -> tuple[ToolDefinition, ...]:
    left_out = say_left_out(plan.code, plan.left_out) if plan.code is not None else ""
    resolved = resolve_server(plan, None, None, say)
    for each in filter(None, (*plan.copied, left_out, *resolved.notes)):
        say(f"{plan.name}: {each}")
    plugin = folder / _PLUGIN
    shutil.rmtree(plugin, ignore_errors=True)
    resolved.content.write(plugin)
    try:
        build_for(
            read_manifest(plugin), config, hosts=resolved.build_hosts, private=resolved.build_private, quiet=False
        )
    except CommandError as error:
        if not wants_build_hosts(error):
            raise
        todo = "What it downloads as it is installed, no option here grants: `fumehood mcp import` says what does."
        raise CommandError(error.what, todo, code=error.code, status=error.status, details=error.details) from error
    lines: list[str] = []
    proposal = propose_folder_pin(plugin, config, lambda line: lines.append(line.message))
    if proposal.report.loaded is None:
        said = [each.problem for each in proposal.report.faults] or [each.message for each in proposal.report.problems]
        shutil.rmtree(plugin, ignore_errors=True)
        what = "\n".join((*said[:4], *lines[-6:]))
        todo = (
            f"{ASKED_WITHOUT} One that needs more in order to list them can't be wrapped: `fumehood mcp import "
            "--list-with-grants NAME` hosts it. Otherwise look at what it wrote, and at its arguments."
        )
        raise NotImportableError("not_started", what, todo)
    asyncio.run(proposal.accept())
    return proposal.report.tools


@contextlib.contextmanager
def _set_aside(folder: Path) -> Iterator[None]:
    """Have no plugin and pin there, for new ones; the old ones come back if what is done in the block fails."""
    for left in folder.glob("old-*"):  # by one that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="old-") as name:
        old = [(folder / each, Path(name) / each) for each in (_PLUGIN, LOCK_NAME) if (folder / each).exists()]
        new = [folder / each for each in (_PLUGIN, LOCK_NAME) if not (folder / each).exists()]
        try:
            for place, aside in old:
                place.rename(aside)
            yield
        except BaseException:
            moved = [(place, aside) for place, aside in old if aside.exists()]
            for place in (*new, *(place for place, _ in moved)):
                _remove(place)
            for place, aside in moved:
                aside.rename(place)
            raise


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an flock: clients start the same server at the same time."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _own_slot(folder: Path) -> Iterator[Path]:
    """A folder for one sidecar, with a state and a journal of its own, that no other uses meanwhile.

    Raises:
        CommandError: all are in use.
    """
    for number in range(_MAX_SLOTS):
        slot = folder / f"run-{number}"
        slot.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(slot / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        try:
            yield slot
            return
        finally:
            os.close(descriptor)
    raise CommandError(f"{_MAX_SLOTS} clients run this server already", "End one.", status=ExitStatus.FAILED)


def _copy(folder: Path, slot: Path) -> None:
    """The pin and the plugin, which the sidecar runs where it lies."""
    shutil.copyfile(folder / LOCK_NAME, slot / LOCK_NAME)
    shutil.rmtree(slot / _PLUGIN, ignore_errors=True)
    shutil.copytree(folder / _PLUGIN, slot / _PLUGIN, symlinks=True)
