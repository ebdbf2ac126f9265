"""The sidecar's own death leaves nothing: neither zygote nor fork supervisor nor calls."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import psutil
import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as tool_grpc

from tests.sidecar import running_sidecar

from .bench import BOUND_S, FOLDER

pytestmark = pytest.mark.promise("S702")


def _watch(pid: int) -> int | None:
    """A descriptor of the process, for its number may be another's by the time it is asked for. None: it has ended."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _ended(pidfd: int | None) -> bool:
    if pidfd is None:
        return True
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(BOUND_S * 1000))


async def test_sidecar_killed_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "simple.py").write_text((FOLDER / "simple.py").read_text())
    (tmp_path / "plugin.toml").write_text(
        '[plugin]\nname = "simple"\nversion = "1.0.0"\nkind = "python"\nentrypoint = "simple:plugin"\n'
    )
    with running_sidecar([tmp_path]) as sidecar:
        async with sidecar.channel() as channel:
            request = pb.CallToolRequest(tool="echo", arguments_json='{"text": "hello"}')
            answer = await tool_grpc.ToolServiceStub(channel).CallTool(request, timeout=BOUND_S)
        assert answer.result.content[0].text == "hello"
        below = psutil.Process(sidecar.process.pid).children(recursive=True)
        assert len(below) >= 4, f"control: bubblewrap, its first process, the zygote, the fork supervisor, not {below}"
        watched = {process.pid: pidfd for process in below if (pidfd := _watch(process.pid)) is not None}
        try:
            os.kill(sidecar.process.pid, signal.SIGKILL)
            sidecar.process.wait(BOUND_S)
            left = [str(process) for process in below if not _ended(watched.get(process.pid))]
            assert not left
        finally:
            for pidfd in watched.values():
                os.close(pidfd)
