"""A server that claims to read only, attacked with through the HTTP door: what it writes, dials and reads in secret.

Its levels by gRPC are tests/mcp/test_levels.py's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.mcp.reach import as_plain_user, open_folders
from tests.mcp.support import mcp_plugin
from tests.mcp.web import web_server
from tests.sidecar import Sidecar, running_sidecar

from .support import MODERN, error_of, http_client, text_of, url_of

TABLE = '[mcp]\nlisten = "127.0.0.1:0"\nallow_anonymous = true\n'
NOT_THERE = "No such file or directory"


@dataclass(frozen=True)
class House:
    """A sidecar with the liar, a folder that it may write to, one that it may read, and somebody's home."""

    sidecar: Sidecar
    writable: Path
    readable: Path
    home: Path
    granted_port: int
    other_port: int


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    plugin = mcp_plugin(tmp_path_factory.mktemp("liar") / "liar")
    with ExitStack() as stack:
        writable, readable, home = stack.enter_context(open_folders("writable", "readable", "home"))
        ports = [stack.enter_context(web_server()) for _ in range(2)]
        (readable / "note").write_text("a note")
        (readable / "note").chmod(0o666)
        key = home / ".ssh" / "id_ed25519"
        key.parent.mkdir()
        key.write_text("a key")
        grants = [
            'max_side_effects = "external"',
            f'read = ["{readable}"]',
            f'write = ["{writable}"]',
            f'hosts = ["127.0.0.1:{ports[0]}"]',
            'allow_private = ["127.0.0.1"]',
            *(f'[plugin.tools.{each}]\npermission = "allow"' for each in ("write_file", "fetch")),
        ]
        sidecar = stack.enter_context(running_sidecar([(plugin, "\n".join(grants))], more=TABLE))
        sidecar.logged(event="mcp_serving")
        yield House(sidecar, writable, readable, home, *ports)


def door(house: House) -> AbstractAsyncContextManager[Client]:
    return http_client(url_of(house.sidecar), MODERN)


async def said(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a call that did not fail."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return text_of(result)


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """What the server was told by the kernel, as its failed call says."""
    error = error_of(await client.call_tool(tool, arguments))
    assert error["details"]["reason"] == "tool_error", error
    return str(error["message"])


async def test_listed_are_the_liars_claims_and_the_level_that_they_are_held_to(house: House) -> None:
    async with door(house) as client:
        claims = {each.name: each.annotations for each in (await client.list_tools()).tools}
        read_only = {name: claimed.read_only_hint for name, claimed in claims.items() if claimed is not None}
        names = ("sneaky_write", "dial", "sneaky_fetch", "read_file", "write_file", "fetch")
        assert {name: read_only[name] for name in names} == {
            "sneaky_write": True,
            "dial": True,
            "sneaky_fetch": True,
            "read_file": True,
            "write_file": False,
            "fetch": False,
        }


async def test_tool_that_claims_to_read_only_writes_nowhere(house: House) -> None:
    async with door(house) as client:
        path = house.writable / "file"
        assert await said(client, "write_file", path=str(path), text="by the one that says so") == "written"
        assert "Read-only file system" in await refusal(client, "sneaky_write", path=str(path), text="by the liar")
        assert path.read_text() == "by the one that says so"
        assert "Read-only file system" in await refusal(client, "sneaky_write", path=f"{path}-new", text="by the liar")
        assert [each.name for each in house.writable.iterdir()] == ["file"]


async def test_tool_that_writes_writes_to_what_is_granted_for_writing_alone(house: House) -> None:
    async with door(house) as client:
        with as_plain_user():
            for folder in (house.readable, house.home):
                (folder / "probe").touch()  # outside, anybody may
                (folder / "probe").unlink()
        assert await said(client, "write_file", path=str(house.writable / "file"), text="a") == "written"
        note = house.readable / "note"
        assert await said(client, "read_file", path=str(note)) == "a note"
        assert "Read-only file system" in await refusal(client, "write_file", path=str(note), text="a")
        assert NOT_THERE in await refusal(client, "write_file", path=str(house.home / "new"), text="a")
        assert note.read_text() == "a note"
        assert [each.name for each in house.home.iterdir()] == [".ssh"]


async def test_key_in_a_home_is_not_there_and_a_note_in_a_granted_folder_is(house: House) -> None:
    async with door(house) as client:
        key = house.home / ".ssh" / "id_ed25519"
        with as_plain_user():
            assert key.read_text() == "a key", "outside, anybody may read it"
        assert await said(client, "read_file", path=str(house.readable / "note")) == "a note"
        for path in (str(key), f"{house.readable}/../home/.ssh/id_ed25519", "~/.ssh/id_ed25519"):
            assert NOT_THERE in await refusal(client, "read_file", path=path)


async def test_link_that_is_put_into_a_granted_folder_leads_to_no_key(house: House) -> None:
    async with door(house) as client:
        out, within = house.readable / "out", house.readable / "within"
        out.symlink_to(house.home / ".ssh" / "id_ed25519")
        within.symlink_to(house.readable / "note")
        assert await said(client, "read_file", path=str(within)) == "a note"
        assert NOT_THERE in await refusal(client, "read_file", path=str(out))


async def test_tool_that_claims_to_read_only_reaches_no_network(house: House) -> None:
    async with door(house) as client:
        granted, other = (f"http://127.0.0.1:{port}/" for port in (house.granted_port, house.other_port))
        assert await said(client, "fetch", url=granted) == "page", "which says that it reaches out"
        for port in (house.granted_port, house.other_port):
            assert "[Errno " in await refusal(client, "dial", host="127.0.0.1", port=port)
        assert "[Errno " in await refusal(client, "sneaky_fetch", url=granted)
        assert "403" in await refusal(client, "fetch", url=other), "by the relay, which knows the grants"
