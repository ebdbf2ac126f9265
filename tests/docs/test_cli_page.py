"""docs/cli.md names every command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
from fumehood_server.cli.root import fumehood

PAGE = (Path(__file__).parents[2] / "docs/cli.md").read_text(encoding="utf-8")
ROWS = "\n".join(line for line in PAGE.partition("\n## ")[0].splitlines() if line.startswith("| `"))


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    """Each command that does something by itself."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group) and not found.invoke_without_command:
            yield from commands(found, *path, name)
        else:
            yield (*path, name)


def is_named(*path: str) -> bool:
    """Whether a row has it whole, or its last word after the group that its first command names."""
    *group, name = path
    word = rf"`{re.escape(name)}[ `|]"
    return any(
        re.search(rf"`{re.escape(' '.join(path))}[ `]", row)
        or (bool(group) and re.match(rf"\| `{re.escape(' '.join(group))} ", row) and re.search(word, row))
        for row in ROWS.splitlines()
    )


def test_every_command_is_in_the_table() -> None:
    found = list(commands(fumehood))
    assert ("approvals", "standing", "revoke") in found
    assert [" ".join(each) for each in found if not is_named(*each)] == []
    assert not is_named("approvals", "standing", "grant")
