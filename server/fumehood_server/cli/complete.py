"""Shell completion of tools, their arguments and plugins, listed by the running sidecar. Empty when there is none."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable

import click
from click.shell_completion import split_arg_string

CONNECT_TIMEOUT_S = 1.0
"""Short, since it is waited for at each press of Tab."""

_RECORDED = 100
"""Calls that completion looks at, the newest."""


def tool_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Tools that can be called now."""
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.failure import CommandError

    try:
        with (
            ctx.scope(cleanup=False),  # for what it shows of who calls
            SidecarClient(ctx.params.get("address"), connect_timeout_s=CONNECT_TIMEOUT_S) as client,
        ):
            names = [tool.definition.name for tool in client.list_tools()]
    except CommandError:
        return []
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


def approval_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Approvals that are open, those that wait first."""
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.failure import CommandError

    try:
        with (
            ctx.scope(cleanup=False),  # for what it shows of who calls
            SidecarClient(ctx.params.get("address"), connect_timeout_s=CONNECT_TIMEOUT_S) as client,
        ):
            found = sorted(client.list_approvals(), key=lambda each: each.state)
    except CommandError:
        return []
    return _typed(each.approval_id for each in found if each.approval_id.startswith(incomplete))


def plugin_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Plugins that the sidecar knows, refused ones included."""
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.failure import CommandError

    try:
        with (
            ctx.scope(cleanup=False),  # for what it shows of who calls
            SidecarClient(ctx.params.get("address"), connect_timeout_s=CONNECT_TIMEOUT_S) as client,
        ):
            names = [plugin.name for plugin in client.list_plugins()]
    except CommandError:
        return []
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


def configured_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Plugins that fumehood.toml names, whether a sidecar runs or not."""
    from fumehood_server.cli.configured import configuration, configured_plugins
    from fumehood_server.errors import ConfigError

    try:
        _, config = configuration(ctx.params.get("config_path"))
    except ConfigError:
        return []
    return _typed(each.name for each in configured_plugins(config) if each.name.startswith(incomplete))


def event_types(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Types of events."""
    from fumehood_server.model.event_types import EVENTS

    return [each for each in EVENTS if each.startswith(incomplete)]


def run_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Runs of the newest calls in the journal."""
    return _recorded(ctx, incomplete, "run_id")


def call_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """The newest calls in the journal."""
    return _recorded(ctx, incomplete, "call_id")


def run_or_call_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Runs and sessions of the newest calls in the journal, and these calls."""
    return _recorded(ctx, incomplete, "run_id", "session_id", "call_id")


def session_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Sessions of the newest calls in the journal."""
    return _recorded(ctx, incomplete, "session_id")


def engine_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Engines that fumehood.toml names."""
    return _of_configuration("engine", incomplete)


def grammar_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Grammars that fumehood.toml names."""
    return _of_configuration("grammars", incomplete)


def _of_configuration(what: str, incomplete: str) -> list[str]:
    from fumehood_server.config import find_config, load_config
    from fumehood_server.errors import ConfigError

    try:
        config = load_config(find_config(None))
    except ConfigError:
        return []
    names = [each.name for each in config.engines] if what == "engine" else [*config.orchestration.grammars]
    return _typed(each for each in names if each.startswith(incomplete))


def _recorded(ctx: click.Context, incomplete: str, *names: str) -> list[str]:
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.cli.journal_file import open_journal
    from fumehood_server.errors import ConfigError

    try:
        with open_journal(ctx.params.get("config_path")) as journal:
            rows = journal.reader.newest_calls(limit=_RECORDED)
    except (CommandError, ConfigError):
        return []
    ids = dict.fromkeys(getattr(row, name) for name in names for row in rows)
    return _typed(each for each in ids if each and each.startswith(incomplete))


def argument_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Names of the arguments that aren't given yet, each with its `=`; after a `=`, the values to choose from."""
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.cli.output import json_or_text
    from fumehood_server.cli.schema import parameters, value_words

    try:
        with (
            ctx.scope(cleanup=False),  # for what it shows of who calls
            SidecarClient(ctx.params.get("address"), connect_timeout_s=CONNECT_TIMEOUT_S) as client,
        ):
            schema = json_or_text(client.get_tool(str(ctx.params.get("tool") or "")).definition.input_schema_json)
    except CommandError:
        return []
    known = {each.name: each for each in parameters(schema)} if isinstance(schema, dict) else {}
    # bash takes "=" for a word of its own; other shells leave NAME=VALUE whole.
    words = [*(ctx.params.get("pairs") or ()), incomplete or _typed_equals()]
    if "=" in words[-2:]:
        at = len(words) - 1 - words[::-1].index("=")
        name, start, before = words[at - 1] if at else "", "" if incomplete == "=" else incomplete, ""
    else:
        name, equals, start = incomplete.partition("=")
        if not equals:
            given = {word.partition("=")[0].removesuffix(":") for word in words[:-1]}
            return [f"{each}=" for each in _typed(known) if each not in given and each.startswith(incomplete)]
        before = f"{name}="
    values = value_words(known[name].schema, schema) if name in known else []
    return [f"{before}{value}" for value in _typed(values) if value.startswith(start)]


def _typed_equals() -> str:
    """The `=` that is the word at bash's cursor, else nothing. Click makes an empty word of it, as behind a space."""
    words, at = split_arg_string(os.environ.get("COMP_WORDS", "")), os.environ.get("COMP_CWORD", "")
    return "=" if at.isdecimal() and words[int(at) : int(at) + 1] == ["="] else ""


def _typed(words: Iterable[str]) -> list[str]:
    """Those words that a shell takes as they are: a plugin's author wrote them, and they land on the command line."""
    return [word for word in words if shlex.quote(word) == word]
