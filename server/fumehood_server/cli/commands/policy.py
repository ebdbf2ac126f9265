"""`fumehood policy`: what rules and quotas of fumehood.toml would say of a call, and what quotas have used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.complete import argument_words, tool_names
from fumehood_server.cli.journal_file import config_option

if TYPE_CHECKING:
    from fumehood.v1 import tool_pb2

    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.config import SidecarConfig
    from fumehood_server.model.plugin import RegisteredTool


@click.group(short_help="Try the permission rules of fumehood.toml, and see what its quotas have left.")
def policy() -> None:
    """Try the permission rules of fumehood.toml, before or after a sidecar has taken them up, and see its quotas."""


@policy.command("test", short_help="What the rules say of a call. Nothing runs.")
@click.argument("tool", shell_complete=tool_names)
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...|JSON|@FILE|-", shell_complete=argument_words)
@click.option("--caller", default="", metavar="NAME", help="Who calls. Without it, a caller without a name.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_option
@address_option
def test_call(
    tool: str, pairs: tuple[str, ...], caller: str, as_json: bool, config_path: Path | None, address: str | None
) -> None:
    """Say whether a call would run, need an approval or be denied, and which rules say so. Nothing runs.

    The quotas that would count it are named.

    The rules are those of fumehood.toml as it is now. The sidecar that serves is asked for the tool's level and plugin.

    \b
    Examples:
      fumehood policy test transfer amount=5000
      fumehood policy test transfer '{"amount": 5000}'
      fumehood policy test write_file @arguments.json --caller builder --json
    """
    import json

    from fumehood_server.cli import output
    from fumehood_server.cli.arguments import gather_words
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.quotas import limit_text, quotas_of_call
    from fumehood_server.config import find_config, load_config
    from fumehood_server.policy import RuleSet

    config = load_config(find_config(config_path))
    with SidecarClient(address) as client:
        described = _described(client, tool)
    schema = output.json_or_text(described.definition.input_schema_json)
    arguments = gather_words(pairs, schema if isinstance(schema, dict) else {})
    text = json.dumps(arguments, ensure_ascii=False)
    registered = _registered(described, tool, config)
    counted = quotas_of_call(config.quotas, registered, caller, text)
    rules = RuleSet(config.rules)
    verdict = rules.decide(registered, caller, text)
    matched = rules.decide(registered, caller, text, every=True).matched
    if as_json:
        output.print_json(
            {
                "tool": tool,
                "caller": caller,
                "permission": verdict.permission.value,
                "rules": list(verdict.rules),
                "matched": list(matched),
                "requirements": [
                    {
                        "rule": each.rule,
                        "approvals": each.approvals,
                        "approvers": list(each.approvers),
                        "self_approval": each.self_approval,
                        "standing": each.standing,
                    }
                    for each in verdict.requirements
                ],
                "policy_version": rules.version,
                "quotas": counted,
            }
        )
        return
    style = output.PERMISSION_STYLES.get(verdict.permission.value, "")
    output.say(output.Part(verdict.permission.value, fg=style), f": decided by {', '.join(verdict.rules)}")
    for each in verdict.requirements:
        who = " of " + ", ".join(each.approvers) if each.approvers else ""
        stands = ", which may stand" if each.standing else ""
        output.say(f"  {each.rule} asks for {each.approvals} approval{'s' if each.approvals > 1 else ''}{who}{stands}")
    others = [each for each in matched if each not in verdict.rules]
    if others:
        output.say(f"  also fits: {', '.join(others)}")
    for found in counted:
        problem = found["problem"] and f": can't be counted, since {found['problem']}"
        takes = "" if found["takes"] is None else f", takes {found['takes']}"
        output.say(f"  quota {found['quota']} counts it: {limit_text(found)}{takes}{problem}")


@policy.command("quotas", short_help="What quotas have used, and what is left.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Keys of each quota, the fullest.")
@config_option
def show_quotas(as_json: bool, top: int, config_path: Path | None) -> None:
    """Show what each quota of fumehood.toml has used and what is left, as the journal has it.

    \b
    Examples:
      fumehood policy quotas
      fumehood policy quotas --json --top 1000
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.journal_file import open_journal
    from fumehood_server.cli.quotas import key_text, limit_text, used_quotas
    from fumehood_server.config import find_config, load_config

    config = load_config(find_config(config_path))
    if not config.quotas:
        if as_json:
            output.print_json({"quotas": []})
        else:
            output.note("fumehood.toml has no [[policy.quota]].")
        return
    with open_journal(config_path) as journal:
        found = used_quotas(config.quotas, journal.reader, top=top)
    if as_json:
        output.print_json({"quotas": found})
        return
    table = output.table("QUOTA", "LIMIT", "COUNTED APART", "USED", "LEFT", "REFILLS")
    for quota in found:
        for place, each in enumerate(
            quota["keys"] or [{"key": {}, "used": "0", "left": quota["limit"], "free_at": ""}]
        ):
            table.add_row(
                output.styled("" if place else quota["quota"], "bold"),
                output.styled("" if place else limit_text(quota)),
                output.styled(output.one_line(key_text(each["key"]))),
                output.styled(each["used"]),
                output.styled(each["left"], "red" if each["left"] == "0" else ""),
                output.styled(each["free_at"] or ""),
            )
        if quota["more"]:
            table.add_row("", "", output.styled(f"and {quota['more']} more", "dim"), "", "", "")
    output.show_rows(output.console(), table)


def _described(client: SidecarClient, name: str) -> tool_pb2.Tool:
    from fumehood_server.cli.commands.tools import with_near_names
    from fumehood_server.cli.failure import CommandError

    try:
        return client.get_tool(name)
    except CommandError as error:
        raise with_near_names(error, name, client) from error


def _registered(tool: tool_pb2.Tool, name: str, config: SidecarConfig) -> RegisteredTool:
    """The tool as the sidecar describes it, with the permission that the file gives it."""
    from fumehood_sandbox import Level

    from fumehood_server.cli.configured import configured_plugins
    from fumehood_server.cli.json_output import level_name
    from fumehood_server.model.plugin import RegisteredTool, ToolGrant
    from fumehood_server.model.tool import DEFAULT_PERMISSION, ToolDefinition

    level = Level(level_name(tool.definition.side_effects))
    declared = tool.declared_name or name
    plugins = [each.config for each in configured_plugins(config) if each.name == tool.plugin]
    grant = plugins[0].tools.get(declared, ToolGrant()) if plugins else ToolGrant()
    return RegisteredTool(
        definition=ToolDefinition(name=declared, description="", input_schema_json="{}", side_effects=level),
        definition_digest=tool.definition_digest,
        plugin=tool.plugin,
        plugin_version=tool.plugin_version,
        permission=grant.permission or DEFAULT_PERMISSION[level],
        permission_set=grant.permission is not None,
        timeout_s=1.0,
        spec=None,
        alias="" if declared == name else name,
    )
