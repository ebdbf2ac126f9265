"""The validator process lives and dies with the sidecar."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.sidecar import running_sidecar

DICE = Path(__file__).parents[2] / "examples/plugins/dice"
GONE_S = 60.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_the_validator_process_starts_when_it_is_needed_and_ends_with_the_sidecar(
    number: signal.Signals,
) -> None:
    with running_sidecar([DICE]) as sidecar:
        own = psutil.Process(sidecar.process.pid)
        assert [each for each in own.children() if is_validator(each)] == []
        async with sidecar.channel() as channel:
            text = '{"count":1,"sides":6,"more":"' + "x" * 100_000 + '"}'
            answer = await ToolServiceStub(channel).CallTool(
                pb.CallToolRequest(tool="roll_dice", arguments_json=text), timeout=30
            )
        assert "/more" in answer.result.error.message
        (validator,) = [each for each in own.children() if is_validator(each)]
        sidecar.signal(number)
        sidecar.wait()
        _, alive = psutil.wait_procs([validator], GONE_S)
        assert alive == []


def is_validator(process: psutil.Process) -> bool:
    try:
        return any("fumehood_server.validation.process" in each for each in process.cmdline())
    except psutil.Error:  # such as one that has described a plugin, and is gone by now
        return False
