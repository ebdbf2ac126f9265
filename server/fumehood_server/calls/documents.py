"""Checks documents: small ones at once on the event loop, all others one by one in the validator process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
from enum import Enum
from types import TracebackType
from typing import Self

from structlog.typing import FilteringBoundLogger

from fumehood_server.calls.paced_thread import PacedThread
from fumehood_server.calls.round_robin import KeyPath, RoundRobin
from fumehood_server.calls.validator_process import ValidatorProcess, start_validator
from fumehood_server.errors import FumehoodError
from fumehood_server.validation.budget import INLINE, OverBudgetError
from fumehood_server.validation.checking import check_document
from fumehood_server.validation.documents import Document, Kind, Verdict, is_large
from fumehood_server.validation.process import OUT_OF_MEMORY_STATUS
from fumehood_server.validation.schemas import SchemaUnusableError, Validators
from fumehood_server.validation.wire import BrokenAnswerError, ValidatorFaultError

DOCUMENT_S = 30.0
"""Longest that one document may take, the start of the process and waiting for a processor included. What it computes
is bounded by the process itself (`CPU_S`)."""

IDLE_S = 60.0
"""An idle process is ended after so long: who has few large documents should not pay its memory all day."""


SHORT_SCHEMA_CHARS = 1024
"""Schemas up to here are compiled on the loop, within some 10 ms for the worst and 2 ms for usual ones."""


class Cause(Enum):
    """Why a document has no verdict."""

    TIME = "time"
    MEMORY = "memory"
    DIED = "died"
    NOT_STARTED = "not_started"


_CAUSES: dict[int | None, Cause] = {
    OUT_OF_MEMORY_STATUS: Cause.MEMORY,
    -signal.SIGABRT: Cause.MEMORY,
    -signal.SIGSEGV: Cause.MEMORY,  # orjson's way to have no memory
    -signal.SIGPROF: Cause.TIME,
}
"""By the exit status of a process that has ended by itself."""


class NoVerdictError(FumehoodError):
    """A document could not be checked."""

    def __init__(self, cause: Cause) -> None:
        """Keep the cause."""
        super().__init__(f"a document could not be checked: {cause.value}")
        self.cause = cause


class _Job:
    __slots__ = ("document", "verdict")

    def __init__(self, document: Document) -> None:
        self.document = document
        self.verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()


class DocumentChecks:
    """The one process and its queue. An async context manager; leaving it ends the process. For one event loop.

    The process is started for the first document that needs it and after each end. A document that takes too long, or
    during which the process ends, fails alone: what waits goes to the next process.
    """

    def __init__(self, log: FilteringBoundLogger, *, document_s: float = DOCUMENT_S, idle_s: float = IDLE_S) -> None:
        """Starts nothing yet."""
        self._log = log
        self._document_s = document_s
        self._idle_s = idle_s
        self._validators = Validators(INLINE)
        self.thread = PacedThread()
        """Compiles the schemas of small documents; for other work with schemas too."""
        self._compiling: dict[tuple[str, Kind], asyncio.Future[None]] = {}
        self._jobs: RoundRobin[_Job] = RoundRobin()
        self._wanted = asyncio.Event()
        self._process: ValidatorProcess | None = None
        self.busy = False
        """Whether the process has a document."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Own the task that owns the process."""
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the process. Nobody may wait for a verdict any more."""
        for compiling in (left := list(self._compiling.values())):
            compiling.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @property
    def pid(self) -> int | None:
        """Process id of the process, while there is one."""
        return None if self._process is None else self._process.pid

    def check_now(self, document: Document) -> Verdict | None:
        """The verdict, if it takes no longer than the event loop may be held up. None: `check` it."""
        if not self._is_compiled(document):
            return None
        try:
            return check_document(document, self._validators, INLINE)
        except OverBudgetError:
            return None

    async def check(self, path: KeyPath, document: Document) -> Verdict:
        """The verdict, of the process where `check_now` has none. A cancelled wait leaves what has begun to its end.

        Raises:
            NoVerdictError: there is none.
        """
        if not self._is_compiled(document) and not is_large(document, INLINE):
            await self._compile(path, document)
            verdict = self.check_now(document)
            if verdict is not None:
                return verdict
        return await self.check_beside(path, document)

    async def check_beside(self, path: KeyPath, document: Document) -> Verdict:
        """The verdict of the process. The keys of each level of a path take turns, the caller's before what is its.

        Raises:
            NoVerdictError: there is none.
        """
        job = _Job(document)
        self._jobs.put(path, job)
        self._wanted.set()
        try:
            return await job.verdict
        except asyncio.CancelledError:
            self._jobs.remove(path, job)
            raise

    def _is_compiled(self, document: Document) -> bool:
        """Whether its schema is, or would be at once."""
        if len(document.schema_json) <= SHORT_SCHEMA_CHARS:
            return True
        key = (document.digest, document.kind)
        return key not in self._compiling and self._validators.knows(key[0], output=key[1] is Kind.OUTPUT)

    async def _compile(self, path: KeyPath, document: Document) -> None:
        """Compile its schema on a thread, mostly in Python, which lets others in. All who wait go on in their order."""
        key = (document.digest, document.kind)
        compiling = self._compiling.get(key)
        if compiling is None:
            compile_now = functools.partial(self._compile_now, document)
            compiling = asyncio.ensure_future(self.thread.run(path, compile_now))
            compiling.add_done_callback(lambda _: self._compiling.pop(key))
            self._compiling[key] = compiling
        await asyncio.shield(compiling)

    def _compile_now(self, document: Document) -> None:
        with contextlib.suppress(SchemaUnusableError, OverBudgetError):  # kept, and told by the check
            self._validators.get(document.digest, document.schema_json, output=document.kind is Kind.OUTPUT)

    async def _run(self) -> None:
        try:
            while True:
                job = await self._next_job()
                if job is None:
                    await self._end()
                else:
                    await self._do(job)
        finally:
            await self._end()

    async def _next_job(self) -> _Job | None:
        """The next job; None when the process has been idle for long."""
        try:
            async with asyncio.timeout(None if self._process is None else self._idle_s):
                while not self._jobs:
                    self._wanted.clear()
                    await self._wanted.wait()
        except TimeoutError:
            return None
        return self._jobs.take()

    async def _do(self, job: _Job) -> None:
        self.busy = True
        try:
            async with asyncio.timeout(self._document_s):
                if self._process is not None and self._process.has_ended:  # while it was idle: killed for its memory
                    await self._end()
                if self._process is None:
                    self._process = await start_validator()
                verdict = await self._process.check(job.document)
        except ValidatorFaultError as exc:
            _fail(job, exc)
        except TimeoutError:
            await self._give_up(job, Cause.TIME)
        except (EOFError, ConnectionError, BrokenAnswerError):
            await self._give_up(job, Cause.DIED)
        except OSError as exc:
            self._log.error("validator_not_started", problem=exc.strerror or str(exc))
            _fail(job, NoVerdictError(Cause.NOT_STARTED))
        except Exception as exc:  # noqa: BLE001 - a fault of ours must not leave the others without their verdicts
            await self._end()
            _fail(job, exc)
        else:
            if not job.verdict.done():
                job.verdict.set_result(verdict)
        finally:
            self.busy = False

    async def _give_up(self, job: _Job, cause: Cause) -> None:
        status = await self._end()
        if cause is Cause.DIED:
            cause = _CAUSES.get(status, cause)
        self._log.warning(
            "validator_ended",
            cause=cause.value,
            status=status,
            kind=job.document.kind.name.lower(),
            bytes=len(job.document.text),
            digest=job.document.digest,
        )
        _fail(job, NoVerdictError(cause))

    async def _end(self) -> int | None:
        """End the process. Returns its exit status: it may have ended by itself before."""
        process, self._process = self._process, None
        return None if process is None else await process.end()


def _fail(job: _Job, error: Exception) -> None:
    if not job.verdict.done():
        job.verdict.set_exception(error)
