"""Reads what one process says: frames on its stdout, log lines on its stderr."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fumehood.v1 import plugin_pb2

from fumehood_server.token_bucket import TokenBucket
from fumehood_server.workers.output.log_rate import LogRate
from fumehood_server.workers.output.stderr import LINES_BURST, LINES_PER_SECOND, StderrLines, StderrReader
from fumehood_server.workers.process.frame_dispatch import DispatchTargets, FrameDispatcher
from fumehood_server.workers.wire.frame_reader import FrameReader

if TYPE_CHECKING:
    from fumehood_sandbox import SandboxedProcess

    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.process.attempt import AttemptTable
    from fumehood_server.workers.process.lifecycle import Lifecycle
    from fumehood_server.workers.process.limit_enforcement import LimitEnforcement
    from fumehood_server.workers.process.requests import RequestRouter
    from fumehood_server.workers.settings import WorkerSettings


class WorkerOutput:
    """The readers of both pipes, under one rate of log lines. Call `resume` to begin and `stop` at the end."""

    def __init__(
        self,
        process: SandboxedProcess,
        spec: WorkerSpec,
        worker_id: str,
        *,
        log: PluginLog,
        settings: WorkerSettings,
        life: Lifecycle,
        table: AttemptTable,
        requests: RequestRouter,
        limits: LimitEnforcement,
        one_call: bool,
    ) -> None:
        """What is read goes to `life`, `table`, `requests`, `limits` and `log`."""
        clock = asyncio.get_running_loop().time
        lines = TokenBucket(burst=LINES_BURST, per_second=LINES_PER_SECOND, clock=clock)
        rate = LogRate(limit_bytes=spec.log_bytes_per_second, clock=clock, on_over=limits.log_rate_exceeded)
        self._dispatcher = FrameDispatcher(
            DispatchTargets(
                plugin=spec.plugin,
                worker_id=worker_id,
                one_call=one_call,
                max_updates=settings.max_updates,
                life=life,
                table=table,
                requests=requests,
                limits=limits,
                log=log,
                log_lines=lines,
                log_rate=rate,
            )
        )
        self._frames = FrameReader(
            process.stdout,
            self._dispatcher,
            max_frame_bytes=settings.max_frame_bytes,
            stall_s=settings.frame_stall_s,
        )
        self._holds = one_call or spec.max_concurrent_calls == 1
        self._lines = StderrLines(log, worker_id, lines, rate)
        self._stderr = StderrReader(process.stderr, self._lines, life.notify)

    @property
    def greeting(self) -> plugin_pb2.Ready:
        """The process's `Ready`; an empty one before it came and after `forget_greeting`."""
        return self._dispatcher.greeting

    @property
    def greeted(self) -> bool:
        """Whether the process has become ready."""
        return self._dispatcher.greeted

    def skip_greeting(self) -> None:
        """The process was forked from one that had said Ready."""
        self._dispatcher.skip_greeting()

    def forget_greeting(self) -> None:
        """Let go of the `Ready`: a hostile one can be as large as a frame."""
        self._dispatcher.greeting = plugin_pb2.Ready()

    @property
    def frames_ended(self) -> bool:
        """Whether stdout was read to its end, or is read no more."""
        return self._frames.ended

    @property
    def stderr_ended(self) -> bool:
        """Whether stderr was read to its end."""
        return self._stderr.ended

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun that is not whole."""
        return self._frames.mid_frame

    def resume(self) -> None:
        """Read both pipes."""
        self._frames.resume()
        self._stderr.resume()

    def hold(self, *, held: bool) -> None:
        """Take no more frames until it is let go, if the process serves one call at a time."""
        if self._holds:
            self._frames.hold(held=held)

    def stop_frames(self) -> None:
        """Take no more frames. What comes on stderr is still read."""
        self._frames.stop()

    def stop(self) -> None:
        """Read no more, and log the line that has begun."""
        self._frames.stop()
        self._stderr.stop()
        self._lines.close()
