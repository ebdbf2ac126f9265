"""A sidecar with tools that leave a line each time they run, and quotas over them."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

from tests.rpc.support import BOUND_S, ToolClient
from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = """
import time
from pathlib import Path
from fumehood_sdk import Plugin, Transient

plugin = Plugin("bank", version="1.0.0")


@plugin.tool(side_effects="write", isolation="process")
def pay(folder: str, amount: float | None = None) -> str:
    \"\"\"Adds a line.\"\"\"
    with (Path(folder) / "paid").open("a") as file:
        file.write(f"{amount}\\n")
    return "paid"


@plugin.tool(side_effects="none", isolation="process")
def look(number: int = 0) -> int:
    \"\"\"Says a number.\"\"\"
    return number


@plugin.tool(side_effects="none", isolation="process")
def say(text: str, times: int) -> str:
    \"\"\"Says a text again and again.\"\"\"
    return text * times


@plugin.tool(side_effects="read", isolation="process", idempotent=True)
def hold(folder: str, name: str, how: str = "") -> str:
    \"\"\"Waits until a file is there, and fails if it is told to.\"\"\"
    if how == "transient":
        raise Transient("not yet")
    if how:
        raise ValueError(how)
    while not (Path(folder) / name).exists():
        time.sleep(0.002)
    return name
"""
QUOTAS = """
[[policy.quota]]
name = "spend"
tools = ["pay"]
sum = "/amount"
max = "100"
window = "1d"
per = ["session"]

[[policy.quota]]
name = "at-once"
tools = ["hold"]
in_flight = 2
per = ["session"]

[[policy.quota]]
name = "tries"
tools = ["hold"]
calls = 4
window = "1h"
per = ["session"]

[[policy.quota]]
name = "size"
tools = ["say"]
bytes = 2000
window = "1h"
per = ["session"]

[[policy.quota]]
name = "looks"
side_effects = ["none"]
tools = ["loo*"]
calls = 50
window = "1h"
per = ["session"]
"""


class Bank:
    """Where sidecars run one after another, or beside one another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger, self.signals = folder / "e", folder / "r"
        for each, mode in ((self.ledger, 0o777), (self.signals, 0o755)):
            each.mkdir()
            each.chmod(mode)

    def sidecar(
        self, more: str = QUOTAS, *, at: str = "a", permission: str = "allow", **settings: Any
    ) -> AbstractContextManager[Sidecar]:
        home = self.folder / at
        home.mkdir(exist_ok=True)
        plugin = write_plugin(home / "plugin", "bank", CODE)
        grants = f'max_side_effects = "write"\nwrite = ["{self.ledger}"]\nread = ["{self.signals}"]\n'
        grants += f'[plugin.tools.pay]\npermission = "{permission}"\n'
        return running_sidecar([(plugin, grants)], more=more, at=home, **settings)

    def paid(self) -> list[str]:
        path = self.ledger / "paid"
        return path.read_text().split() if path.exists() else []

    def let_go(self, name: str) -> None:
        (self.signals / name).touch()

    def pay(self, amount: str, session: str = "", call_id: str = "", **fields: Any) -> pb.CallToolRequest:
        """`amount` is JSON; nothing where it is empty."""
        given = f', "amount": {amount}' if amount else ""
        return self.request("pay", f'{{"folder": {json.dumps(str(self.ledger))}{given}}}', session, call_id, **fields)

    def hold(self, name: str, session: str = "", how: str = "", **fields: Any) -> pb.CallToolRequest:
        arguments = {"folder": str(self.signals), "name": name, "how": how}
        return self.request("hold", json.dumps(arguments), session, **fields)

    def request(
        self, tool: str, arguments_json: str, session: str = "", call_id: str = "", **fields: Any
    ) -> pb.CallToolRequest:
        request = pb.CallToolRequest(tool=tool, arguments_json=arguments_json, call_id=call_id, **fields)
        request.context.session_id = session
        return request


@contextlib.contextmanager
def bank() -> Iterator[Bank]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:  # sockets have short paths
        folder = Path(name)
        folder.chmod(0o755)
        yield Bank(folder)


@contextlib.asynccontextmanager
async def client_of(sidecar: Sidecar) -> Any:
    async with sidecar.channel() as channel:
        yield ToolClient(sidecar, channel)


async def result_of(client: ToolClient, request: pb.CallToolRequest) -> tool_pb2.ToolResult:
    result: tool_pb2.ToolResult = (await client.tools.CallTool(request, timeout=BOUND_S)).result
    return result


async def code_of(client: ToolClient, request: pb.CallToolRequest) -> str:
    """The code that a call ends with, empty where it succeeds; of a quota's refusal its name."""
    error = (await result_of(client, request)).error
    if error.code == "TOOL_QUOTA_EXCEEDED":
        return str(json.loads(error.details_json)["quota"])
    return error.code
