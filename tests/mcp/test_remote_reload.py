"""A reload asks a server by the configuration that it takes up; one that is refused leaves calls the old secrets."""

from __future__ import annotations

import json
from pathlib import Path

from tests.mcp.support import Caller
from tests.mcp.test_remote import TOKEN, granted, remote_plugin, remote_server
from tests.rpc.support import ToolClient
from tests.rpc.test_config_reload import refusal, reload, served
from tests.sidecar import running_sidecar


def secret(path: Path, value: str) -> str:
    """`[secrets.token]` in a file of its own."""
    path.write_text(value)
    path.chmod(0o600)
    return f"[secrets.token]\nfile = {json.dumps(str(path))}\n"


async def test_a_server_and_its_secret_are_taken_up_by_one_reload(tmp_path: Path) -> None:
    with remote_server(f"token={TOKEN}") as port, running_sidecar([]) as sidecar:
        headers = 'Authorization = { secret = "token", prefix = "Bearer " }'
        url = f"http://127.0.0.1:{port}/mcp"
        plugin = remote_plugin(tmp_path / "far", url, headers, more='isolation = "call"')
        entry = f"[[plugin]]\npath = {json.dumps(str(plugin))}\n{granted(port, 'echo')}\n"
        file = sidecar.folder / "fumehood.toml"
        first = file.read_text()
        async with sidecar.channel() as channel:
            client = ToolClient(sidecar, channel)
            file.write_text(f"{first}\n{entry}\n{secret(tmp_path / 'wrong', 'wr0ng-value')}")
            message, _ = await refusal(client)
            assert ("HTTP status 401" in message, await served(client)) == (True, []), message
            file.write_text(f"{first}\n{entry}\n{secret(tmp_path / 'right', TOKEN)}")
            assert await reload(client) == (["far"], [], [])
            assert await Caller(channel).text("echo", text="hello") == "hello"
            other = f"[[plugin]]\npath = {json.dumps(str(tmp_path / 'nowhere'))}\n"
            file.write_text(f"{first}\n{entry}\n{other}\n{secret(tmp_path / 'wrong', 'wr0ng-value')}")
            message, _ = await refusal(client)
            assert "nowhere" in message
            assert await Caller(channel).text("echo", text="by the old secret") == "by the old secret"
