"""Who may answer what a call's tool asks."""

from __future__ import annotations

from pathlib import Path

import grpc
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

from tests.mcp.support import mcp_plugin
from tests.rpc.support import BOUND_S, call, refused
from tests.sidecar import running_sidecar

from .conftest import CALLERS
from .support import House, Services, plain_channel


async def test_a_question_is_answered_by_the_calls_own_caller_and_operators(tmp_path: Path) -> None:
    server = 'listen = ["unix:s", "127.0.0.1:0"]'
    with running_sidecar([mcp_plugin(tmp_path / "small")], server=server, more=CALLERS) as sidecar:
        unix, tcp = sidecar.targets
        async with plain_channel(unix) as one, plain_channel(tcp) as other:
            await _answered(House(sidecar, Services(one), Services(other)))


async def _answered(house: House) -> None:
    async def answer(caller: str, call_id: str) -> None:
        request = pb.AnswerQuestionRequest(
            call_id=call_id, question_id="question-1", action=tool_pb2.ANSWER_ACTION_DECLINE
        )
        await house.tcp.tools.AnswerQuestion(request, metadata=house.token(caller), timeout=BOUND_S)

    for caller in ("writer", "boss"):
        call_id = f"answered-by-{caller}"
        asking = call("ask_client", {"method": "elicitation/create"}, call_id=call_id, takes_questions=True)
        stream = house.tcp.tools.StreamTool(pb.StreamToolRequest(call=asking), metadata=house.token("writer"))
        while (await stream.read()).WhichOneof("event") != "question":
            pass
        assert await refused(answer("reader", call_id)) == (grpc.StatusCode.NOT_FOUND, "QUESTION_NOT_FOUND")
        await answer(caller, call_id)
        finished = (await stream.read()).finished
        assert '"action": "decline"' in finished.content[0].text
