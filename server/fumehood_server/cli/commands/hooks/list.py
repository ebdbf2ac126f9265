"""`fumehood hooks list`: hooks and middleware, and whether each is there."""

from __future__ import annotations

import click

from fumehood_server.cli.address import address_option


@click.command("list", short_help="List hooks and middleware, and who serves them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@address_option
def list_hooks(as_json: bool, address: str | None) -> None:
    """List middleware and hooks in the order in which calls meet them, and who serves each hook.

    \b
    Examples:
      fumehood hooks list
      fumehood hooks list --json | jq -r '.hooks[] | select(.connections == 0) | .name'
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.model.durations import duration_s

    with SidecarClient(address) as client:
        rows = [
            {
                "name": each.name,
                "kind": each.kind,
                "stages": list(each.stages),
                "timeout_s": duration_s(each.timeout),
                "when_gone": each.when_gone,
                "connections": each.connections,
                "served_by": list(each.served_by),
                "tools": list(each.tools),
                "plugins": list(each.plugins),
                "side_effects": list(each.side_effects),
                "callers": list(each.callers),
            }
            for each in client.list_hooks()
        ]
    if as_json:
        output.print_json({"hooks": rows})
        return
    console = output.console()
    if not rows:
        console.print("fumehood.toml names no hook and no middleware (docs/hooks.md).")
        return
    table = output.table("NAME", "KIND", "ASKED", "STATE", "WHEN GONE", "CALLS")
    for row in rows:
        is_there = bool(row["connections"])
        state = ", ".join(map(str, _texts(row["served_by"]))) or "loaded"
        matchers = [
            f"{name}: {', '.join(text or '(no name)' for text in texts)}"
            for name in ("tools", "plugins", "side_effects", "callers")
            if (texts := _texts(row[name]))
        ]
        table.add_row(
            output.styled(str(row["name"]), "bold"),
            output.styled(str(row["kind"])),
            output.styled(", ".join(_texts(row["stages"]))),
            output.styled(state if is_there else "gone", "green" if is_there else "red"),
            output.styled(str(row["when_gone"])),
            output.styled("; ".join(matchers) or "all", "dim"),
        )
    output.show_rows(console, table)


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
