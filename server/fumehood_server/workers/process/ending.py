"""Escalation: ends a worker's process by ever harder means, reaps it, and answers every call that is left."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fumehood_server.model.worker import WorkerState
from fumehood_server.telemetry import get_logger
from fumehood_server.workers import faults
from fumehood_server.workers.faults import EscalationStep
from fumehood_server.workers.process.hung import close_when_gone
from fumehood_server.workers.process.lifecycle import EndRequest
from fumehood_server.workers.wire import messages

if TYPE_CHECKING:
    from fumehood_sandbox import SandboxedProcess

    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.workers.limits.meter import Meter
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.process.attempt import AttemptTable
    from fumehood_server.workers.process.lifecycle import Lifecycle
    from fumehood_server.workers.process.limit_enforcement import LimitEnforcement
    from fumehood_server.workers.process.requests import RequestRouter
    from fumehood_server.workers.process.watch import Watch
    from fumehood_server.workers.process.worker_output import WorkerOutput
    from fumehood_server.workers.settings import WorkerSettings
    from fumehood_server.workers.wire.pipes import PipeWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingParts:
    """What of a worker its end has to do with."""

    process: SandboxedProcess
    spec: WorkerSpec
    worker_id: str
    log: PluginLog
    settings: WorkerSettings
    life: Lifecycle
    table: AttemptTable
    writer: PipeWriter
    output: WorkerOutput
    requests: RequestRouter
    limits: LimitEnforcement
    meter: Meter
    watch: Watch
    one_call: bool


class Ending:
    """The end of one worker: drain, shutdown frame, SIGTERM, SIGKILL, reap.

    A step is left out where the process has exited, or more was asked for.
    """

    __slots__ = (
        "_ended_by_itself",
        "_life",
        "_output",
        "_parts",
        "_process",
        "_settings",
        "_table",
        "_watch",
        "escalated_to",
        "exit",
    )

    def __init__(self, parts: EndingParts) -> None:
        """Of a worker that lives."""
        self._parts = parts
        self._process = parts.process
        self._settings = parts.settings
        self._life = parts.life
        self._table = parts.table
        self._output = parts.output
        self._watch = parts.watch
        self._ended_by_itself = False
        self.escalated_to = EscalationStep.CANCEL_FRAME
        """The hardest means that was used so far."""
        self.exit = ""
        """How it ended, in words. Empty while it lives."""

    async def run(self) -> None:
        """Go on to the end, whoever cancels it, and however often."""
        cancelled: asyncio.CancelledError | None = None
        failed = False
        while self._life.state is not WorkerState.DEAD:
            try:
                await (self._end_by_force() if failed else self._end())
            except asyncio.CancelledError as error:
                self._life.request(EndRequest.KILL)
                cancelled = error
            except Exception as problem:  # a fault of ours must leave neither process nor call behind
                if failed:
                    raise
                failed = True
                get_logger().error("a worker's end failed", exc_info=problem, worker_id=self._parts.worker_id)
        if cancelled is not None:
            raise cancelled

    async def _end_by_force(self) -> None:
        self._process.kill()
        await self._life.until(lambda: self._life.vanished, within_s=self._settings.kill_confirm_s)
        self._reap()

    async def _end(self) -> None:
        if self._life.state is not WorkerState.ENDING:  # for nobody has asked for its end
            self._ended_by_itself = True
            self._life.stop_admitting()
        await self._drain()
        await self._ask_to_exit()
        await self._terminate()
        await self._kill()
        await self._read_what_is_left()
        self._reap()

    async def _drain(self) -> None:
        """Let calls under way finish; beside one that ignored its cancellation, for `linger_s` more."""
        life, table = self._life, self._table

        def is_over() -> bool:
            return life.requested >= EndRequest.SHUTDOWN or not table.under_way

        await self._watch.until(lambda: is_over() or table.lingering)
        if not is_over():
            await self._watch.until(lambda: is_over() or not table.unanswered, within_s=self._settings.linger_s)
        if life.exited:
            return
        if not is_over():
            life.request(EndRequest.TERMINATE, faults.cancellation_ignored_error(self._parts.spec.plugin))
        elif self._parts.limits.filled and not table.under_way:
            life.request(EndRequest.KILL)

    async def _ask_to_exit(self) -> None:
        if self._life.exited or self._life.requested >= EndRequest.TERMINATE:
            return
        self._parts.writer.send(messages.shutdown(self._settings.shutdown_grace_s))
        await self._watch.until(
            lambda: self._life.requested >= EndRequest.TERMINATE, within_s=self._settings.shutdown_grace_s
        )

    async def _terminate(self) -> None:
        if self._life.exited or self._life.requested >= EndRequest.KILL:
            return
        self._escalate(EscalationStep.SIGTERM, "sent SIGTERM to the program")
        self._process.terminate()
        await self._watch.until(
            lambda: self._life.requested >= EndRequest.KILL,
            within_s=self._settings.terminate_grace_of(self._parts.spec.isolation),
        )

    async def _kill(self) -> None:
        life, settings = self._life, self._settings
        if life.exited and life.requested < EndRequest.KILL:
            # The kernel ends the other one by itself within milliseconds; should it not, it is made to.
            await life.until(lambda: life.vanished, within_s=settings.pipe_grace_s)
        if life.vanished:
            return
        if self.escalated_to is not EscalationStep.SIGKILL:
            self._parts.meter.note()
            self._output.stop_frames()
            self._escalate(EscalationStep.SIGKILL, "killed every process of the sandbox")
            self._process.kill()
        await life.until(lambda: life.vanished, within_s=settings.kill_confirm_s)

    async def _read_what_is_left(self) -> None:
        """What the process said last may still be in its pipes, a result among it."""
        life = self._life
        self._output.hold(held=False)
        if life.vanished:
            await life.until(
                lambda: (self._output.frames_ended or life.requested is EndRequest.KILL) and self._output.stderr_ended,
                within_s=self._settings.pipe_grace_s,
            )

    def _reap(self) -> None:
        """Let go of the process, and answer everybody who waits."""
        life = self._life
        self._parts.requests.close()
        self._parts.writer.stop()
        self._output.stop()
        if life.vanished:
            self._process.poll()
            description = self._process.exit_description
        else:
            description = "killed, and still hanging in the kernel"
            life.say(f"process {self._process.pid} was killed and does not vanish", level="error")
        self.exit = description
        if self._ended_by_itself:
            life.failed = True
            life.say(f"ended by itself: {description}", level="warning")
        self._attribute_death(description)
        for attempt in self._table.under_way.values():
            attempt.lose(life.cause or faults.ending_error(self._parts.spec.plugin), self.escalated_to)
        self._table.under_way.clear()
        life.become_dead()
        if life.vanished:
            self._process.close()
        else:
            close_when_gone(self._process, life.running)

    def _attribute_death(self, description: str) -> None:
        """Find out what it died of, if anybody is to be told."""
        life = self._life
        ready = self._output.greeted
        if life.cause is None and (self._table.under_way or not ready or life.failed):
            words = self._parts.log.last_words(self._parts.worker_id)
            life.cause = self._parts.limits.attribute_death() or faults.death_error(
                self._parts.spec.plugin, description, words, ready=ready, mid_frame=self._output.mid_frame
            )

    def _escalate(self, step: EscalationStep, message: str) -> None:
        self.escalated_to = step
        if self._parts.one_call and self._table.served and not self._table.under_way:
            return  # how each of them ends
        # An operator looks for calls that had to be ended by force, and not for workers that nobody needs any more.
        self._life.say(message, level="info" if self._table.under_way else "debug")
