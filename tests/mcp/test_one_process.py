"""`one_process`: one process for the tools of every level and all calls at once. With hosts, it has the relay."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

from tests.mcp.support import Caller, mcp_plugin
from tests.mcp.web import web_server
from tests.sidecar import running_sidecar

SECOND_PROCESS_S = 3.0
"""What a second process, were there one, takes to start and answer."""


async def test_tools_of_every_level_share_the_process_that_reaches_granted_hosts(tmp_path: Path) -> None:
    with web_server() as port:
        url = f"http://127.0.0.1:{port}/"
        hosts = f'max_side_effects = "external"\nhosts = ["127.0.0.1:{port}"]\nallow_private = ["127.0.0.1"]\n'
        tools = '[plugin.tools.count_up]\nside_effects = "external"\npermission = "allow"\n'
        apart, together = mcp_plugin(tmp_path / "apart"), mcp_plugin(tmp_path / "together")
        grants = [(apart, hosts + tools), (together, f'prefix = "one_"\none_process = true\n{hosts}{tools}')]
        with running_sidecar(grants) as sidecar:
            async with sidecar.channel() as channel:
                caller = Caller(channel)
                assert [await caller.text("count_up"), await caller.text("count")] == ["1", "0"]
                assert [await caller.text("one_count_up"), await caller.text("one_count")] == ["1", "1"]
                assert (await caller.call("sneaky_fetch", url=url)).is_error, "control: at level read there is no relay"
                fetched = await caller.call("one_sneaky_fetch", url=url)
                assert not fetched.is_error, fetched.error
                assert fetched.sandbox.side_effects == tool_pb2.SIDE_EFFECTS_EXTERNAL


async def test_call_meets_the_state_of_its_one_process_also_while_another_runs(tmp_path: Path) -> None:
    one = mcp_plugin(tmp_path / "one", more="concurrency = 1")
    tools = '[plugin.tools.count_up]\npermission = "allow"\n'
    with running_sidecar([(one, f'max_side_effects = "write"\none_process = true\n{tools}')]) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            assert await caller.text("count_up") == "1"
            asking = pb.CallToolRequest(
                tool="ask_client", arguments_json='{"method": "elicitation/create"}', takes_questions=True
            )
            events = aiter(caller.stub.StreamTool(pb.StreamToolRequest(call=asking)))
            question = await anext(event.question async for event in events if event.HasField("question"))
            counted = asyncio.create_task(caller.text("count"))
            await asyncio.wait({counted}, timeout=SECOND_PROCESS_S)
            assert not counted.done()
            await caller.stub.AnswerQuestion(
                pb.AnswerQuestionRequest(
                    call_id=question.call_id,
                    question_id=question.question_id,
                    action=tool_pb2.ANSWER_ACTION_DECLINE,
                )
            )
            assert await counted == "1"


async def test_process_for_each_call_is_refused_beside_one_process(tmp_path: Path) -> None:
    manifest, table = mcp_plugin(tmp_path / "manifest", more='isolation = "call"'), mcp_plugin(tmp_path / "table")
    apart, alone = mcp_plugin(tmp_path / "apart", more='isolation = "call"'), mcp_plugin(tmp_path / "alone")
    call = '[plugin.tools.count]\nisolation = "call"\n'
    one, served = "one_process = true\n", {"apart_count", "alone_count"}
    grants = [(manifest, one), (table, one + call), (apart, 'prefix = "apart_"'), (alone, f'prefix = "alone_"\n{one}')]
    with running_sidecar(grants) as sidecar:
        async with sidecar.channel() as channel:
            listed = await Caller(channel).tools()
            assert served == {
                name for name, tool in listed.items() if name.endswith("count") and not tool.availability.reasons
            }
        for name in ("manifest", "table"):
            assert "`one_process`" in json.dumps(sidecar.logged(event="plugin_refused", plugin=name))
