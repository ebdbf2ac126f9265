"""The program of docs/hooks.md, as it stands there."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from fumehood.v1 import hook_service_pb2 as hook_pb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.hook_service_pb2_grpc import HookServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.sidecar import running_sidecar, write_plugin

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text(encoding="utf-8")
BOUND_S = 30
CODE = """
from fumehood_sdk import Plugin

plugin = Plugin("shop", version="1.0.0")


@plugin.tool(side_effects="none")
def pay_invoice(amount: int, reference: str = "") -> str:
    \"\"\"Pays.\"\"\"
    return f"{amount} for {reference}"
"""


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[number]


async def test_the_pages_hook_denies_what_is_too_much_and_gives_the_rest_a_reference(tmp_path: Path) -> None:
    program: dict[str, Any] = {"__name__": "spending"}
    exec(block("python"), program)  # noqa: S102 - our own page
    config = re.sub(r"served_by.*\n", "", block("toml"))  # whoever is an operator: here is no caller with a name
    config = re.sub(r"timeout_s = \d+", "timeout_s = 60", config)  # a busy machine may take longer to answer
    plugin = write_plugin(tmp_path / "shop", "shop", CODE)
    with running_sidecar([plugin], more=config) as sidecar:
        serving = asyncio.create_task(program["main"](sidecar.target, ""))
        async with sidecar.channel() as channel:
            hooks: Any = HookServiceStub(channel)
            async with asyncio.timeout(BOUND_S):
                while not (await hooks.ListHooks(hook_pb.ListHooksRequest())).hooks[0].connections:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.01)
            tools: Any = ToolServiceStub(channel)

            async def pay(amount: int) -> Any:
                request = pb.CallToolRequest(
                    tool="pay_invoice", arguments_json=json.dumps({"amount": amount}), call_id=f"pay-{amount}"
                )
                return (await tools.CallTool(request, timeout=BOUND_S)).result

            assert (await pay(10)).content[0].text == "10 for pay-10"
            assert (await pay(1001)).error.code == "TOOL_DENIED"
        serving.cancel()
        await asyncio.wait([serving])
