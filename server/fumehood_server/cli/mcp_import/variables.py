"""Variable expansion in MCP hosts' configurations, by each host's own rules. What a variable holds is not expanded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fumehood_server.cli.mcp_import.host_configuration import Host, InputVariable
from fumehood_server.cli.mcp_import.secret_values import named_like_a_secret

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_CLAUDE_CODE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_WORKING_FOLDER = "PWD"
_NESTED_DEFAULT = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*:-[^{}]*\$\{")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What references stand for."""

    host: Host
    environment: Mapping[str, str]
    inputs: Mapping[str, InputVariable] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    """Values of inputs."""
    workspace: Path | None = None
    home: Path = field(default_factory=Path.home)


@dataclass(slots=True)
class Expanded:
    """A text with its references replaced, and what is to be known of where they lead."""

    text: str = ""
    variable: str = ""
    """The text is the value of this environment variable and nothing else."""
    secret: bool = False
    """A password, or a variable named like a secret, is part of it."""
    asked: tuple[str, ...] = ()
    """Inputs whose value isn't known: nothing stands for them in the text."""
    unset: tuple[str, ...] = ()
    """Environment variables that aren't set and have no default, likewise."""
    problems: tuple[str, ...] = ()
    """References that mean nothing outside of their host."""


def expand(text: str, scope: Scope) -> Expanded:
    """Replace the references of a text, once: a value that looks like a reference stays as it is."""
    made = Expanded()
    if scope.host is Host.CLAUDE_DESKTOP:  # expands nothing
        made.text = text
        return made
    if scope.host is Host.CLAUDE_CODE and _NESTED_DEFAULT.search(text):
        made.problems = ("a default that holds a reference is not expanded by Claude Code: write its value",)
        return made
    made.text = _REFERENCE.sub(lambda found: _value(found, scope, made), text)
    if made.variable and not _REFERENCE.fullmatch(text):
        made.variable = ""
    return made


def _value(found: re.Match[str], scope: Scope, made: Expanded) -> str:
    inner = found[1]
    if scope.host is Host.CLAUDE_CODE:
        parsed = _CLAUDE_CODE.fullmatch(inner)
        return _variable(parsed["name"], parsed["default"], scope, made) if parsed else found[0]
    return _editor_value(inner, found[0], scope, made)


def _editor_value(inner: str, shown: str, scope: Scope, made: Expanded) -> str:
    kind, colon, rest = inner.partition(":")
    if ":-" in inner:  # Claude Code's form, whose default may be a secret
        made.problems = (*made.problems, f"a default, as in ${{{inner.partition(':-')[0]}:-…}}, is Claude Code's alone")
        return ""
    if kind == "env" and colon:
        return _variable(rest, None, scope, made)
    if kind == "input" and colon:
        return _input(rest, scope, made)
    if kind in {"workspaceFolder", "workspaceFolderBasename", "cwd"}:
        return _workspace(kind, shown, scope, made)
    known = {"userHome": str(scope.home), "pathSeparator": "/", "/": "/"}
    if inner not in known:
        made.problems = (*made.problems, f"{shown} is known to its host alone: write its value")
        return ""
    return known[inner]


def _variable(name: str, default: str | None, scope: Scope, made: Expanded) -> str:
    if name == _WORKING_FOLDER:  # the host's, which is started in the workspace, and not that of whoever imports
        return str(scope.workspace or Path.cwd())
    made.secret = made.secret or named_like_a_secret(name)
    made.variable = name if default is None else ""
    value = scope.environment.get(name)
    # Claude Code follows the shell: `:-` takes the default for an empty variable too.
    if value is None or (value == "" and default is not None):
        if default is None:
            made.unset = (*made.unset, name)
            return ""
        return default
    return value


def _input(name: str, scope: Scope, made: Expanded) -> str:
    known = scope.inputs.get(name)
    if known is None:
        made.problems = (*made.problems, f"`inputs` names no {name}")
        return ""
    made.secret = made.secret or known.password
    if name in scope.given:
        return scope.given[name]
    if known.default is not None and not known.password:
        if _REFERENCE.search(known.default):
            made.problems = (*made.problems, f"the default of the input {name} holds a reference: give its value")
            return ""
        return known.default
    made.asked = (*made.asked, name)
    return ""


def _workspace(kind: str, shown: str, scope: Scope, made: Expanded) -> str:
    if scope.workspace is None:
        made.problems = (*made.problems, f"{shown} is not known here: give --workspace FOLDER")
        return ""
    return scope.workspace.name if kind == "workspaceFolderBasename" else str(scope.workspace)
