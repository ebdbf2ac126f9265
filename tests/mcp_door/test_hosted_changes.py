"""A hosted server's tools change and are pinned anew: clients of both eras are told, and not before they are pinned."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mcp import Client

from tests.cli.command import fumehood
from tests.mcp.reach import open_folders
from tests.mcp.test_changed_lists import marked_plugin
from tests.sidecar import running_sidecar

from .support import BOUND_S, MODERN, error_of, http_client, text_of, url_of

TABLE = '[mcp]\nlisten = "127.0.0.1:0"\nallow_anonymous = true\n'


async def description(client: Client) -> str | None:
    """What the list says of the tool that changes."""
    listed = await client.list_tools()
    return next(tool.description for tool in listed.tools if tool.name == "count")


@pytest.mark.parametrize("mode", [MODERN, "legacy"])
async def test_clients_are_told_once_a_hosted_servers_changed_tools_are_pinned(tmp_path: Path, mode: str) -> None:
    told = asyncio.Event()

    async def heard(message: object) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            told.set()

    with open_folders("marks") as (marks,):
        folder, entry = marked_plugin(tmp_path / "updated", marks)
        with running_sidecar([(folder, entry)], more=TABLE) as sidecar:

            def pin() -> None:
                config = sidecar.folder / "fumehood.toml"
                done = fumehood("plugin", "add", folder, "--yes", "--config", config, address=sidecar.target)
                assert done.status == 0, done.stderr

            async def change_and_pin(client: Client, changed: asyncio.Task[object]) -> None:
                assert await description(client) == "Counts its calls in memory."
                assert text_of(await client.call_tool("count", {})) == "0", "a process that lists what is pinned"
                (marks / "mark").touch()
                assert text_of(await client.call_tool("change", {})) == "changed"
                for code in ("TOOL_EXECUTION_FAILED", "CONFIG_PLUGIN_INVALID"):
                    error = error_of(await client.call_tool("count", {}))
                    assert (error["code"], error["details"]["reason"]) == (code, "definition_changed")
                assert await description(client) == "Counts its calls in memory."
                assert not changed.done(), "nothing that is offered has changed yet"
                await asyncio.to_thread(pin)
                await asyncio.wait_for(changed, BOUND_S)
                assert await description(client) == "Counts otherwise."
                assert text_of(await client.call_tool("count", {})) == "0"

            await asyncio.to_thread(pin)
            if mode == MODERN:
                async with (
                    http_client(url_of(sidecar), mode) as client,
                    client.listen(tools_list_changed=True) as events,
                ):

                    async def next_event() -> object:
                        return await anext(aiter(events))

                    await change_and_pin(client, asyncio.create_task(next_event()))
            else:
                async with http_client(url_of(sidecar), mode, message_handler=heard) as client:
                    await change_and_pin(client, asyncio.create_task(told.wait()))
