"""Tables on narrow terminals and through pipes: names, ids, levels and times are there whole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from fumehood_server.cli import output
from fumehood_server.cli.rows import Rows
from rich.cells import cell_len

from tests.cli.command import fumehood, on_terminal
from tests.sidecar import running_sidecar, write_plugin

WIDTHS = (80, 100, 120)
APPROVALS = [f"approval-{'1f3c' * 8}", f"approval-{'9e07' * 8}"]
GIT_TOOLS = ["add", "branch", "checkout", "commit", "create_branch", "diff", "diff_staged", "diff_unstaged", "log"]
GIT_TOOLS = [f"git_{name}" for name in [*GIT_TOOLS, "reset", "show", "status"]]
CLAIMS = "readOnly, not destructive, idempotent, not openWorld"
PROSE = "Shows changes in the working directory that are not yet staged, as a unified diff of a repository"


def shown(rows: Rows, width: int | None) -> list[str]:
    return [line.plain for line in rows.lines(width)]


def git_rows() -> Rows:
    rows = output.table("TOOL", "LEVEL", "CALLS", "CLAIMS", prose=(2, 3))
    for name in GIT_TOOLS:
        rows.add_row(name, "external", "need an approval", CLAIMS)
    return rows


def approval_rows() -> Rows:
    rows = output.table("APPROVAL", "STATE", "TOOL", "LEVEL", "WHO ASKS", "CALL", "ARGUMENTS")
    arguments = '{"message": "a b c", "n": 1}'
    for each in APPROVALS:
        rows.add_row(each, "pending", "git_commit", "external", "unix (no name)", f"call-{'0a' * 16}", arguments)
    return rows


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def words(lines: Sequence[str]) -> list[str]:
    return " ".join(lines).split()


@pytest.mark.parametrize("width", WIDTHS)
def test_no_cell_of_the_git_servers_tools_is_cut_or_broken(width: int) -> None:
    lines = shown(git_rows(), width)
    assert max(map(cell_len, lines)) <= width
    for name in GIT_TOOLS:
        assert words(lines).count(name) == 1
    assert words(lines).count("external") == len(GIT_TOOLS)
    assert " ".join(words(lines)).count("need an approval") == len(GIT_TOOLS)
    assert words(lines).count("idempotent,") == len(GIT_TOOLS)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_ids_and_arguments_of_approvals_are_whole(width: int) -> None:
    lines = shown(approval_rows(), width)
    assert max(map(cell_len, lines)) <= width
    for each in APPROVALS:
        assert words(lines).count(each) == 1
    assert "\n".join(lines).count('"message": "a b c"') == len(APPROVALS)
    assert words(lines).count("pending") == len(APPROVALS)


def test_where_the_row_does_not_fit_beside_its_last_cell_that_stands_below() -> None:
    rows = output.table("ID", "WHAT")
    rows.add_row("i" * 30, "some words that are too many here")
    assert shown(rows, 40) == ["ID", "    WHAT", "i" * 30, "    some words that are too many here"]
    assert shown(rows, 60) == ["ID" + " " * 30 + "WHAT", "i" * 30 + "  some words that are too many", " " * 32 + "here"]


def test_where_nothing_else_fits_each_row_is_a_block() -> None:
    rows = output.table("ID", "RUN", "WHAT")
    rows.add_row("i" * 30, "r" * 30, "words")
    rows.add_row("j" * 30, "s" * 30, "more words")
    block = ["ID    " + "i" * 30, "RUN   " + "r" * 30, "WHAT  words", ""]
    assert shown(rows, 50) == [*block, "ID    " + "j" * 30, "RUN   " + "s" * 30, "WHAT  more words"]


def test_a_summary_alone_is_cut_and_not_through_a_pipe() -> None:
    rows = output.table("TOOL", "WHAT IT DOES", cuts=True)
    rows.add_row("git_diff", PROSE)
    cut = shown(rows, 80)[1]
    assert cut.startswith("git_diff  Shows changes in")
    assert cut.endswith("…")
    assert len(shown(rows, 80)) == 2
    assert shown(rows, None)[1] == f"git_diff  {PROSE}"


def test_a_cell_can_not_begin_a_row() -> None:
    rows = output.table("RUN", "TOOL")
    rows.add_row("run-1\n2026-01-01 forged", "a\ttool\r\u2028")
    lines = shown(rows, None)
    assert len(lines) == 2
    assert "run-1␊2026-01-01 forged" in lines[1]


MANY = '''
    from fumehood_sdk import Plugin

    plugin = Plugin("many", version="1.0.0")

    @plugin.tool(side_effects="read")
    def a_tool_with_a_long_name_for_a_table(path: str, limit: int = 10) -> str:
        """Read what stands there, and say in some words more than fit on a line what that was."""
        return "x"
'''


@pytest.mark.parametrize("width", WIDTHS)
def test_on_a_terminal_levels_names_and_call_ids_are_whole(tmp_path: Path, width: int) -> None:
    folder = write_plugin(tmp_path / "many", "many", MANY)
    name, call = "a_tool_with_a_long_name_for_a_table", f"call-{'0a1b' * 8}"
    more = {"COLUMNS": str(width)}
    _, added = on_terminal("plugin", "add", "--yes", folder, folder=tmp_path, more=more)
    assert {name, "read", "LEVEL", "NEEDS"} <= set(words([plain(added)]))
    grant = f'[plugin.tools.{name}]\npermission = "require_approval"'
    with running_sidecar([(folder, grant)]) as sidecar:
        asked = fumehood("call", name, "path=/etc/x", "--call-id", call, "--no-wait", "--json", address=sidecar.target)
        approval = asked.json["error"]["details"]["approval_id"]
        _, listed = on_terminal("approvals", "list", address=sidecar.target, more=more)
        assert {approval, name, "read", '"path":', "pending"} <= set(re.split(r"[\s{}]+|(?<=:)", plain(listed)))
        _, tools = on_terminal("tools", address=sidecar.target, more=more)
        assert {name, "read", "require_approval", "many"} <= set(words([plain(tools)]))
