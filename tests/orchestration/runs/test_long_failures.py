"""Tools that fail with long details: responses and streams say what counts, and the call's record has the rest."""

from __future__ import annotations

import json
from pathlib import Path

from fumehood.v1 import tool_service_pb2 as tools_pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.orchestration.scripted import ScriptedModel
from tests.sidecar import running_sidecar, write_plugin

from .bench import TIMEOUT_S, asked, events_of, run, runs_of

FAILING = '''
    from fumehood_sdk import Plugin, ToolError

    plugin = Plugin("failing", version="1.0.0")

    @plugin.tool(side_effects="none", idempotent=True)
    def fail(count: int) -> str:
        """Fail."""
        raise ToolError("no", reason="nope", details={"v": [1] * count})
'''
LONG, SHORT, TIMES = 28_000, 3, 4
"""56 KB of details, and 13 bytes."""


async def test_failures_with_long_details_are_cut_in_responses_and_whole_on_record(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.calls(*[("fail", {"count": LONG})] * TIMES, ("fail", {"count": SHORT}))
    scripted_model.says("I see.")
    plugin = write_plugin(tmp_path / "plugin", "failing", FAILING)
    with running_sidecar([plugin], more=scripted_model.engine_table()) as sidecar:
        async with runs_of(sidecar) as stub, sidecar.channel() as channel:
            events = await events_of(stub, asked(request_id="r"))
            again = await run(stub, asked(request_id="r"))
            call = tools_pb.GetCallRequest(call_id=events[-1].finished.tool_calls_made[0].call_id)
            recorded = (await ToolServiceStub(channel).GetCall(call, timeout=TIMEOUT_S)).result.error
    response = events[-1].finished
    told = [each.tool_finished.error for each in events if each.HasField("tool_finished")]
    assert again == response
    for errors in ([each.error for each in response.tool_calls_made], told):
        details = sorted((json.loads(each.details_json) for each in errors), key=len)
        cut = {"reason": "nope", "truncated": True}
        assert [each for each in details if "truncated" in each] == [cut] * TIMES
        assert {"reason": "nope", "v": [1] * SHORT} in details, "short ones are whole"
    assert json.loads(recorded.details_json)["v"] == [1] * LONG
