"""What the official server for files refuses itself, by roots that are its grants, and what the kernel refuses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mcp.reach import as_plain_user, open_folders
from tests.mcp.real_servers import node_plugin
from tests.mcp.support import Caller, reason
from tests.sidecar import Sidecar, running_sidecar

BOUND_S = 60.0
OWN_CHECK = "Access denied"
"""What the server says of a path that it refuses itself."""
WRITERS = ("write_file", "edit_file", "create_directory", "move_file")


@dataclass(frozen=True)
class Tree:
    """A sidecar, and the folders below the one that the server's command names."""

    sidecar: Sidecar
    writable: Path
    readable: Path
    private: Path


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    with open_folders("writable", "readable", "private") as (writable, readable, private):
        for each in (readable, private):
            (each / "note").write_text(f"a {each.name} note")
            (each / "note").chmod(0o666)
        plugin = node_plugin(tmp_path_factory.mktemp("wide") / "files", "filesystem", str(writable.parent))
        grants = f'max_side_effects = "write"\nwrite = ["{writable}"]\nread = ["{readable}"]\n'
        grants += "".join(f'[plugin.tools.{each}]\npermission = "allow"\n' for each in WRITERS)
        with running_sidecar([(plugin, grants)]) as sidecar:
            yield Tree(sidecar, writable, readable, private)


@pytest.fixture
async def caller(tree: Tree) -> AsyncIterator[Caller]:
    async with tree.sidecar.channel() as channel:
        yield Caller(channel)


async def refusal(caller: Caller, tool: str, **arguments: object) -> str:
    """What the server says of a call that it would have let through."""
    result = await caller.call(tool, **arguments)
    assert reason(result) == "tool_error", result
    assert OWN_CHECK not in result.error.message
    return str(result.error.message)


async def test_roots_of_the_server_are_its_grants_where_its_command_names_more(caller: Caller, tree: Tree) -> None:
    granted = f"Allowed directories:\n{tree.readable}\n{tree.writable}"
    async with asyncio.timeout(BOUND_S):
        while await caller.text("list_allowed_directories") != granted:
            pass  # it asks for its roots once it is initialized, and answers calls meanwhile
    assert await caller.text("read_text_file", path=str(tree.readable / "note")) == "a readable note"
    result = await caller.call("read_text_file", path=str(tree.private / "note"))
    assert (reason(result), OWN_CHECK in result.error.message) == ("tool_error", True)


async def test_link_in_a_granted_folder_leads_to_nothing_that_is_not_granted(caller: Caller, tree: Tree) -> None:
    """The server looks where a link leads, which isn't there: it takes it for a file that is to be made."""
    for name, target in (("out", tree.private), ("within", tree.writable)):
        (tree.writable / name).symlink_to(target)
    (tree.writable / "note").write_text("a writable note")
    out, within = tree.writable / "out", tree.writable / "within"
    with as_plain_user():
        assert (out / "note").read_text() == "a private note", "outside, it leads there"
        (out / "probe").touch()
        (out / "probe").unlink()
    assert await caller.text("read_text_file", path=str(within / "note")) == "a writable note"
    await caller.text("write_file", path=str(within / "new"), content="a")
    assert (tree.writable / "new").read_text() == "a"
    await refusal(caller, "read_text_file", path=str(out / "note"))
    await refusal(caller, "write_file", path=str(out / "new"), content="a")
    await refusal(caller, "move_file", source=str(within / "new"), destination=str(out / "new"))
    assert [each.name for each in tree.private.iterdir()] == ["note"]
    assert (tree.writable / "new").read_text() == "a"


async def test_folder_that_is_granted_for_reading_is_not_written_by_tools_of_level_write(
    caller: Caller, tree: Tree
) -> None:
    note = tree.readable / "note"
    with as_plain_user():
        (tree.readable / "probe").touch()  # outside, anybody may
        (tree.readable / "probe").unlink()
    mine = tree.writable / "file"
    await caller.text("write_file", path=str(mine), content="a")
    await caller.text("edit_file", path=str(mine), edits=[{"oldText": "a", "newText": "b"}])
    await caller.text("create_directory", path=str(tree.writable / "folder"))
    await caller.text("move_file", source=str(mine), destination=str(tree.writable / "moved"))
    assert ((tree.writable / "moved").read_text(), (tree.writable / "folder").is_dir()) == ("b", True)
    tried: list[tuple[str, dict[str, object]]] = [
        ("write_file", {"path": str(note), "content": "a"}),
        ("write_file", {"path": str(tree.readable / "new"), "content": "a"}),
        ("edit_file", {"path": str(note), "edits": [{"oldText": "a", "newText": "b"}]}),
        ("move_file", {"source": str(note), "destination": str(tree.readable / "moved")}),
        ("move_file", {"source": str(tree.writable / "moved"), "destination": str(tree.readable / "moved")}),
    ]
    for tool, arguments in tried:
        said = await refusal(caller, tool, **arguments)
        assert "EROFS" in said or "EXDEV" in said, (tool, arguments, said)
    await refusal(caller, "create_directory", path=str(tree.readable / "folder"))  # Node tells ENOENT of it
    assert [each.name for each in tree.readable.iterdir()] == ["note"]
    assert note.read_text() == "a readable note"
