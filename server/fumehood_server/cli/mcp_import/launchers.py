"""Command lines of MCP servers: what npx, uvx and their like would fetch and start, and what can't run in a sandbox."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import takewhile
from pathlib import PurePath

from packaging.requirements import InvalidRequirement, Requirement

from fumehood_server.cli.mcp_import.container_image import container_image
from fumehood_server.cli.mcp_import.shown_text import shown


class Launch(StrEnum):
    """How a server is had."""

    NPM = "npm"
    """A package of the npm registry."""
    PYPI = "pypi"
    """A package of the Python index."""
    PROGRAM = "program"
    """A program or script of this machine."""
    REMOTE = "remote"
    """A server that runs elsewhere, over HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """A server's command line, taken apart."""

    launch: Launch
    requirement: str = ""
    """As the launcher takes it: "PKG", "PKG@1.2" (npm), "PKG==1.2" (Python)."""
    others: tuple[str, ...] = ()
    """Packages installed beside it."""
    script: str = ""
    """The program of the package; empty: the one that the launcher would choose. Of a REMOTE its URL."""
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the command line itself sets."""
    notes: tuple[str, ...] = ()
    """What the launcher would have done that is not done here."""


class NotImportableError(Exception):
    """A server that can't be imported; `code` is stable, `todo` says what its user can do."""

    def __init__(self, code: str, reason: str, todo: str) -> None:
        """Keep code, reason and remedy."""
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.todo = todo


_CONTAINERS = {"docker", "podman", "nerdctl", "finch", "container"}
_GATEWAYS = {"docker-mcp": "Docker MCP Gateway", "thv": "ToolHive", "wassette": "Wassette"}
_SHELLS = {"sh", "bash", "dash", "zsh", "fish", "ksh", "powershell", "pwsh"}
_OTHER_USERS = {"sudo", "doas", "su", "runuser", "pkexec"}
_PLACES_ELSEWHERE = {"ssh", "kubectl", "wsl", "multipass", "vagrant", "gcloud", "flatpak", "systemd-run"}
_OWN_NAME, _OWN_MODULE = "fumehood", "fumehood_server"
_RUNS_TEXT = (
    (re.compile(r"python\d?[\d.]*"), re.compile(r"-[A-Za-z]*c")),
    (re.compile(r"node|nodejs|bun"), re.compile(r"-[ep]|-pe|--eval|--print")),
    (re.compile(r"perl|ruby"), re.compile(r"-[A-Za-z]*e")),
    (re.compile(r"php"), re.compile(r"-r")),
)
"""Interpreters, and their options behind which stands a program's text."""
_ENDINGS = (".exe", ".cmd", ".bat", ".ps1")
_NPM_NAME = re.compile(r"(?P<name>(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*)(?:@(?P<version>[^\s/:@]+))?")
_MAX_NAME = 214
"""Of a package of npm's registry."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_WRITE_IT = "Write the program in `command` and each argument in `args`, and import it again."


def parse_command(command: str, arguments: Sequence[str]) -> ServerCommand:
    """Take a server's command line apart.

    Raises:
        NotImportableError: it starts a container, a shell, another machine's program, or what is in no registry.
    """
    _refuse_no_program(command)
    name = program_name(command)
    rest = list(arguments)
    if name == "cmd" and rest[:1] and rest[0].lower() == "/c" and len(rest) > 1:
        return parse_command(rest[1], rest[2:])  # how the others are started on Windows
    if name == "env":
        return _env(rest)
    _refuse(name, rest)
    for words, parse in _LAUNCHERS:
        if [name, *rest][: len(words)] == list(words):
            return _not_our_own(parse(rest[len(words) - 1 :]))
    return ServerCommand(launch=Launch.PROGRAM, script=command, arguments=tuple(rest))


def program_name(command: str) -> str:
    """The name of a program, without folders and Windows' endings."""
    name = PurePath(command.replace("\\", "/")).name.lower()
    return next((name.removesuffix(each) for each in _ENDINGS if name.endswith(each)), name)


def npm_name(requirement: str) -> tuple[str, str]:
    """Name and version, tag or range of a package of npm's registry; an empty version is the newest.

    Raises:
        NotImportableError: it is something else: a folder, a URL, a repository.
    """
    found = _NPM_NAME.fullmatch(requirement)
    if found is None or len(requirement) > _MAX_NAME or ".." in requirement:
        text = f"{shown(requirement)} is no package of npm's registry"
        raise NotImportableError("not_a_package", text, "Publish it, or write a plugin of kind mcp around it by hand.")
    return found["name"], found["version"] or ""


def _refuse_no_program(command: str) -> None:
    """Refuse what can't be a program's name, and may hold anything: none of it is quoted but a program's own name."""
    if "://" in command:
        what = "its `command` is an address, where a program of this machine is to be named, which serves on stdio"
        raise NotImportableError("transport", what, 'Name a server over HTTP by "url" in place of `command`.')
    if _ASSIGNMENT.fullmatch(command):
        what = "its `command` begins with a variable, as a shell has it"
        raise NotImportableError("shell", what, "Write variables in `env`, the program alone in `command`.")
    first, *others = command.split()[:2] or [""]
    if others and shutil.which(command) is None and (program_name(first) in _STARTERS or shutil.which(first)):
        what = f"{shown(first)} and its arguments stand in one text, where each is to be separate"
        todo = (
            f'Write "{shown(first)}" alone in `command`, and each argument as an element of `args`; behind '
            "`fumehood mcp wrap --` each of them as one of its own."
        )
        raise NotImportableError("malformed", what, todo)


def _refuse(name: str, arguments: Sequence[str]) -> None:
    first = arguments[0] if arguments else ""
    _refuse_our_own(name, arguments)
    if name in _GATEWAYS or (name in _CONTAINERS and list(arguments[:2]) == ["mcp", "gateway"]):
        gateway = _GATEWAYS.get(name, "Docker MCP Gateway")
        what = f"it is {gateway}, which starts servers itself, outside of any sandbox here"
        todo = (
            "Name each server that it runs by its npm or PyPI package: see docs/coming-from-mcp-gateways.md. Or leave "
            "the gateway where it is, and import the others."
        )
        raise NotImportableError("gateway", what, todo)
    if name in _CONTAINERS or name == "docker-compose":
        image = container_image(arguments)
        what = f"a container can't be started from inside a sandbox ({name}{f', image {image}' if image else ''})"
        todo = "Use the npm or PyPI package of the same server with npx or uvx, or put its program into a plugin."
        raise NotImportableError("container", what, todo)
    if name in _SHELLS or name == "cmd":
        raise NotImportableError("shell", f"a shell ({name}) would decide what runs", _WRITE_IT)
    if name in _OTHER_USERS:
        raise NotImportableError("other_user", f"{name} would run it as another user, which no plugin may", _WRITE_IT)
    if name in _PLACES_ELSEWHERE:
        todo = "Serve it there by a sidecar of its own."
        raise NotImportableError("elsewhere", f"{name} would run it outside of any sandbox", todo)
    if name.startswith("python") and first == "-m":
        module = arguments[1] if len(arguments) > 1 else ""
        todo = "Name the package that holds it: `uvx PACKAGE`, or `uvx --from PACKAGE SCRIPT`."
        raise NotImportableError("module", f"which package holds the Python module {shown(module)} isn't said", todo)
    options = [each.partition("=")[0] for each in takewhile(lambda each: each.startswith("-"), arguments)]
    runs_text = next((text for interpreter, text in _RUNS_TEXT if interpreter.fullmatch(name)), None)
    option = next((each for each in options if runs_text is not None and runs_text.fullmatch(each)), "")
    if option:
        what = f"`{name} {option}` runs a text, and no script that could be copied and pinned"
        todo = "Write the text to a file, and that file's absolute path as the first argument."
        raise NotImportableError("program", what, todo)


def _refuse_our_own(name: str, arguments: Sequence[str]) -> None:
    words = [each for each in arguments if not each.startswith("-") or each == "-m"]
    if name.startswith("python") and words[:2] == ["-m", _OWN_MODULE]:
        words = words[2:]
    elif name != _OWN_NAME:
        return
    if words[:2] == ["mcp", "wrap"]:
        what = "it is Fumehood's own entry: `fumehood mcp wrap` holds its server in a sandbox already"
        raise NotImportableError("own_entry", what, "")
    raise NotImportableError("own_entry", "it is Fumehood's own entry", "")


def _not_our_own(found: ServerCommand) -> ServerCommand:
    """What a launcher starts, unless that is Fumehood from a package."""
    if found.launch is Launch.PYPI and found.script == _OWN_NAME:
        _refuse_our_own(_OWN_NAME, found.arguments)
    return found


def _env(arguments: Sequence[str]) -> ServerCommand:
    rest = list(arguments)
    variables: dict[str, str] = {}
    while rest and _ASSIGNMENT.fullmatch(rest[0]):
        name, _, value = rest.pop(0).partition("=")
        variables[name] = value
    if not rest or rest[0].startswith("-"):
        raise NotImportableError("shell", "what `env` would start isn't plain", _WRITE_IT)
    found = parse_command(rest[0], rest[1:])
    return replace(found, environment={**variables, **found.environment})


_BRIDGE = "mcp-remote"
_NPX_FLAGS = {"-y", "--yes", "-q", "--quiet", "--silent", "-s", "--prefer-online", "--prefer-offline", "--bun", "--no"}
_NPX_FLAGS |= {"--no-install", "--ignore-existing", "--ignore-scripts"}


def _npx(arguments: Sequence[str]) -> ServerCommand:
    rest, packages = list(arguments), list[str]()
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if option == "--":
            break
        if option in {"-p", "--package"}:
            packages.append(value if equals else _next(rest, option))
        elif option in {"-c", "--call"}:
            raise NotImportableError("shell", f"`npx {option}` hands a line to a shell", _WRITE_IT)
        elif option not in _NPX_FLAGS:
            raise _unknown_option("npx", option)
    if not packages:
        packages.append(_next(rest, "npx"))
        script = ""
    else:
        script = _next(rest, "npx --package")
    for each in packages:
        if npm_name(each)[0] == _BRIDGE:
            what = f"{_BRIDGE} starts no server here: it passes on what one elsewhere says, and asks for its login"
            todo = (
                f'Name its URL itself in place of {_BRIDGE}, {{"url": "https://…"}}, with what it takes in "headers", '
                "and import that. OAuth is not done here: name a token."
            )
            raise NotImportableError("bridge", what, todo)
    first, *others = packages
    return ServerCommand(
        launch=Launch.NPM, requirement=first, others=tuple(others), script=script, arguments=tuple(rest)
    )


_UVX_FLAGS = {"-q", "--quiet", "-v", "--verbose", "--refresh", "--no-cache", "-n", "--isolated", "-U", "--upgrade"}
_UVX_FLAGS |= {"--offline", "--native-tls", "--system-certs", "--no-config", "--no-progress", "--managed-python"}
_UVX_FLAGS |= {"--no-env-file", "--no-python-downloads", "--no-managed-python"}


def _uvx(arguments: Sequence[str]) -> ServerCommand:
    rest, source = list(arguments), ""
    others: list[str] = []
    notes: list[str] = []
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if option == "--":
            break
        if option in {"--from", "--with", "-w"}:
            value = value if equals else _next(rest, option)
            if option == "--from":
                source = value
            else:
                others.extend(each.strip() for each in value.split(",") if each.strip())
        elif option in {"-p", "--python"}:
            version = value if equals else _next(rest, option)
            notes.append(f"it runs with the sidecar's Python, not {shown(version)}")
        elif option not in _UVX_FLAGS:
            raise _unknown_option("uvx", option)
    first = _next(rest, "uvx")
    requirement = _python_requirement(source or first)
    return ServerCommand(
        launch=Launch.PYPI,
        requirement=requirement,
        others=tuple(_python_requirement(each) for each in others),
        script=first if source else Requirement(requirement).name,
        arguments=tuple(rest),
        notes=tuple(notes),
    )


_UV_FLAGS = {
    "--frozen",
    "--locked",
    "--no-sync",
    "--no-dev",
    "--active",
    "--no-project",
    "--all-extras",
    "-s",
    "--script",
    *_UVX_FLAGS,
}
_UV_FOLDERS = {"--directory", "--project"}
_TOOL_RUN = ["tool", "run"]


def _uv(arguments: Sequence[str]) -> ServerCommand:
    tool = _tool_run(arguments)
    return _uv_run(arguments) if tool is None else _uvx(tool)


def _uv_run(arguments: Sequence[str]) -> ServerCommand:
    """`uv run SCRIPT.py`, whose project says what it needs."""
    rest, folder = list(arguments), ""
    others: list[str] = []
    notes: list[str] = []
    words: list[str] = []
    while rest and (rest[0].startswith("-") or not words):
        if not rest[0].startswith("-"):
            words.append(rest.pop(0))
            continue
        option, equals, value = rest.pop(0).partition("=")
        if option == "--":
            break
        if option in _UV_FOLDERS:
            folder = value if equals else _next(rest, option)
        elif option in {"--with", "-w"}:
            others.append(_python_requirement(value if equals else _next(rest, option)))
        elif option in {"-p", "--python"}:
            version = value if equals else _next(rest, option)
            notes.append(f"it runs with the sidecar's Python, not {shown(version)}")
        elif option not in _UV_FLAGS:
            raise _unknown_option("uv", option)
    if rest[:1] in (["python"], ["python3"]):
        rest.pop(0)
    if words != ["run"] or not rest or not rest[0].endswith(".py") or "://" in rest[0]:
        todo = "Name the published package with `uvx PACKAGE`, or write a plugin with its `dependencies` by hand."
        what = f"`uv {' '.join(map(shown, (*words, *rest[:1])))}` runs what a project installs, which isn't copied"
        raise NotImportableError("project", what, todo)
    script = str(PurePath(folder, rest[0])) if folder else rest[0]
    return ServerCommand(
        launch=Launch.PROGRAM, script="python3", others=tuple(others), arguments=(script, *rest[1:]), notes=tuple(notes)
    )


def _tool_run(arguments: Sequence[str]) -> list[str] | None:
    """What stands behind `uv tool run`, which options of uv's own may precede. None: it is another subcommand."""
    rest, words = list(arguments), list[str]()
    while rest and len(words) < len(_TOOL_RUN):
        word, equals, _ = rest.pop(0).partition("=")
        if word in _UV_FOLDERS and not equals:
            rest = rest[1:]
        elif word not in _UV_FOLDERS | _UV_FLAGS:
            words.append(word)
    return rest if words == _TOOL_RUN else None


def _pipx(arguments: Sequence[str]) -> ServerCommand:
    return _uvx(["--from" if each == "--spec" else each for each in arguments])


_LAUNCHERS: tuple[tuple[tuple[str, ...], Callable[[Sequence[str]], ServerCommand]], ...] = (
    (("npx",), _npx),
    (("bunx",), _npx),
    (("pnpx",), _npx),
    (("npm", "exec"), _npx),
    (("npm", "x"), _npx),
    (("bun", "x"), _npx),
    (("pnpm", "dlx"), _npx),
    (("yarn", "dlx"), _npx),
    (("uvx",), _uvx),
    (("uv",), _uv),
    (("pipx", "run"), _pipx),
)


_STARTERS = {each[0] for each, _ in _LAUNCHERS} | {*_CONTAINERS, *_SHELLS, *_OTHER_USERS, "env", "node", "python3"}
"""Programs with which command lines begin, on this machine or not."""


def _python_requirement(text: str) -> str:
    """A requirement as PEP 508 writes it; uv's "PKG@1.2" and "PKG@latest" are understood."""
    name, at, version = text.partition("@")
    if at and "/" not in version and ":" not in version:
        text = name.strip() if version.strip() == "latest" else f"{name.strip()}=={version.strip()}"
    todo = "Name a package of the index that has wheels, such as `uvx PACKAGE==VERSION`."
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise NotImportableError("not_a_package", f"{shown(text)} is no package of the Python index", todo) from error
    if requirement.url:
        what = f"{shown(text)} is fetched from an address, not from the index"
        raise NotImportableError("not_a_package", what, todo)
    return text


def _next(rest: list[str], what: str) -> str:
    if not rest:
        raise NotImportableError("malformed", f"nothing follows {what}", _WRITE_IT)
    return rest.pop(0)


def _unknown_option(launcher: str, option: str) -> NotImportableError:
    text = f"{launcher}'s option {shown(option)} isn't known here"
    return NotImportableError("unknown_option", text, "Leave it out, if the server works without it.")
