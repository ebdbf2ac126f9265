"""The sidecar's own death leaves nothing: neither zygote nor attendant nor calls."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as tool_grpc

from tests.sidecar import running_sidecar

from .bench import BOUND_S, FOLDER


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
        # Identified by their start, for one that ends meanwhile, as a warmed-up child may, frees its number.
        before = psutil.Process(sidecar.process.pid).children(recursive=True)
        assert len(before) >= 4, "control: bubblewrap, its first process, the zygote, the attendant"
        os.kill(sidecar.process.pid, signal.SIGKILL)
        sidecar.process.wait(BOUND_S)
        _, left = psutil.wait_procs(before, BOUND_S)
        assert not left
