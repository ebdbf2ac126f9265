"""What a call shares with the next where neither author nor operator says anything, and where they do."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood.v1 import tool_pb2
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.model.tool import Isolation
from fumehood_server.plugins import check_plugin
from fumehood_server.workers import LogSink, describe

from tests.plugins.support import FakeDescribe, executable
from tests.rpc.support import BOUND_S, call, text_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin

pytestmark = pytest.mark.promise("S706")

_COUNTER = """
    from fumehood_sdk import Plugin

    plugin = Plugin("counter", version="1.0.0")
    calls = []

    @plugin.tool(side_effects="none")
    def count_by_default() -> str:
        \"\"\"Count the calls that this process has served.\"\"\"
        calls.append(None)
        return str(len(calls))

    @plugin.tool(side_effects="none", isolation="process")
    def count_in_a_process() -> str:
        \"\"\"Count the calls that this process has served.\"\"\"
        return count_by_default()

    @plugin.tool(side_effects="none", isolation="call")
    def count_as_the_operator_says() -> str:
        \"\"\"Count the calls that this process has served.\"\"\"
        return count_by_default()
"""
_APPENDER = """
[plugin]
name = "appender"
version = "1.0.0"
kind = "cli"
binary = "sh"

[[tool]]
name = "append_by_default"
description = "Count the calls by a file of scratch."
side_effects = "none"
argv = ["-c", "echo x >> /tmp/calls; wc -l < /tmp/calls"]
input_schema = '{"type": "object"}'

[[tool]]
name = "append_in_a_process"
description = "Count the calls by a file of scratch."
side_effects = "none"
isolation = "process"
argv = ["-c", "echo x >> /tmp/calls; wc -l < /tmp/calls"]
input_schema = '{"type": "object"}'
"""


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("plugins")
    counter = write_plugin(folder / "counter", "counter", _COUNTER)
    (folder / "appender").mkdir()
    (folder / "appender" / "plugin.toml").write_text(_APPENDER)
    operator = '[plugin.tools.count_as_the_operator_says]\nisolation = "process"\n'
    with running_sidecar([(counter, operator), folder / "appender"]) as sidecar:
        yield sidecar


@pytest.mark.parametrize(
    ("tool", "isolation"),
    [
        ("count_by_default", tool_pb2.ISOLATION_CALL),
        ("count_in_a_process", tool_pb2.ISOLATION_PROCESS),
        ("count_as_the_operator_says", tool_pb2.ISOLATION_PROCESS),
        ("append_by_default", tool_pb2.ISOLATION_CALL),
        ("append_in_a_process", tool_pb2.ISOLATION_PROCESS),
    ],
)
async def test_call_finds_nothing_of_the_one_before_unless_somebody_said_process(
    sidecar: Sidecar, tool: str, isolation: tool_pb2.Isolation
) -> None:
    async with sidecar.channel() as channel:
        tools = ToolServiceStub(channel)
        results = [(await tools.CallTool(call(tool), timeout=BOUND_S)).result for _ in range(3)]
    assert [result.sandbox.isolation for result in results] == [isolation] * 3
    counted = [int(text_of(result)) for result in results]
    first = counted[0]  # the tools of one process count together
    assert counted == ([1, 1, 1] if isolation == tool_pb2.ISOLATION_CALL else [first, first + 1, first + 2])


_STARTER = """
    import threading, time
    from fumehood_sdk import Plugin

    plugin = Plugin("starter", version="1.0.0")
    {starts}

    @plugin.tool(side_effects="none"{isolation})
    def say() -> str:
        \"\"\"Say a word.\"\"\"
        return "word"
"""
_THREAD = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
_CALL, _PROCESS = ', isolation="call"', ', isolation="process"'


@pytest.mark.parametrize(
    ("starts", "said", "isolation", "told"),
    [
        ("", "", Isolation.CALL, False),
        ("", _PROCESS, Isolation.PROCESS, False),
        (_THREAD, "", Isolation.PROCESS, True),
        (_THREAD, _PROCESS, Isolation.PROCESS, False),
        (_THREAD, _CALL, None, True),
    ],
)
async def test_import_that_cannot_be_forked_has_a_process_or_is_refused_where_it_says_call(
    tmp_path: Path, starts: str, said: str, isolation: Isolation | None, told: bool
) -> None:
    folder = write_plugin(tmp_path / "starter", "starter", _STARTER.format(starts=starts, isolation=said))
    report = await check_plugin(folder, describe=functools.partial(describe, logs=LogSink()))
    assert [tool.isolation for tool in report.tools] == ([isolation] if isolation else [])
    if isolation is None:
        words = [f"{reason.message} {reason.remedy}" for reason in report.problems]
    else:
        words = [advice.message for advice in report.warnings if not advice.tool]
    assert [("1 other threads were started" in each, 'isolation="process"' in each) for each in words] == (
        [(True, True)] if told else []
    )


async def test_program_that_speaks_the_frames_keeps_its_process(tmp_path: Path) -> None:
    report = await check_plugin(executable(tmp_path / "one"), describe=FakeDescribe())
    assert [tool.isolation for tool in report.tools] == [Isolation.PROCESS]
