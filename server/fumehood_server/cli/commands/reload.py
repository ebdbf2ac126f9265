"""`fumehood reload`: has the sidecar take up its configuration."""

from __future__ import annotations

import click

from fumehood_server.cli.address import address_option


@click.command(short_help="Have the sidecar take up fumehood.toml.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def reload(as_json: bool, address: str | None) -> None:
    """Have the sidecar read its configuration again and take it up, all of it or nothing.

    Plugins are added and removed; grants, limits, secrets, egress and callers hold for new calls, and certificates are
    read again. Calls under way finish as they began. If anything is wrong, nothing changes and you are told what and
    where. [server] and `minimum` of [sandbox] take a restart. What has changed in a plugin's folder is for
    `fumehood plugin add` and `fumehood plugin reload`.

    \b
    Example:
      fumehood reload                           after you have edited fumehood.toml
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.client import SidecarClient

    with SidecarClient(address) as client:
        done = client.reload_config()
    plugins = {"added": done.added_plugins, "removed": done.removed_plugins, "changed": done.changed_plugins}
    if as_json:
        lists = {**plugins, "keys": done.changed_keys, "notes": done.notes}
        output.print_json({what: list(found) for what, found in lists.items()})
        return
    for what, names in plugins.items():
        for name in names:
            output.say(output.one_line(f"{what} {name}"))
    settings = [_TABLES.get(each, each) for each in done.changed_keys]
    if settings:
        output.say(output.one_line(f"taken up: {', '.join(settings)}"))
    if not any((settings, *plugins.values())):
        output.say("Taken up: nothing is added, removed or changed.")
    for each in done.notes:
        output.note(output.one_line(each))


_TABLES = {
    "rules": "[[policy.rule]]",
    "quotas": "[[policy.quota]]",
    "callers": "[[caller]]",
    "hooks": "[[hook]]",
    "middleware": "[[middleware]]",
    "engines": "[[engine]]",
}
"""What the file calls settings that are lists."""
