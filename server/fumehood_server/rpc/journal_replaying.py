"""`ReplayRun`: a run from its record, a page at a time; or its calls run again, in a process beside the sidecar."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import orjson
from fumehood.v1 import journal_service_pb2 as pb

from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.config.config import SidecarConfig
from fumehood_server.errors import JournalUnavailableError, Refusal, RefusalReason, RefusedError
from fumehood_server.journal.reads import JournalReads
from fumehood_server.journal.store import Reader
from fumehood_server.launches import import_path
from fumehood_server.orchestration.replaying import replay_run
from fumehood_server.replay.process import END_FRAME, frame, sent_config
from fumehood_server.replay.record import ReplayableCall, RunPages
from fumehood_server.rpc.journal_requests import invalid
from fumehood_server.rpc.recorded_calls import STATES
from fumehood_server.rpc.result_messages import ResultWriter

MAX_RUN_BYTES = 256
END_S = 30.0
"""For the end of the sandboxes that a process has; milliseconds, but for what hangs in the kernel."""
_MESSAGE_BYTES = 256 * 1024
"""Far below the 4 MiB that a gRPC client takes. One call may be longer."""
_LINE_BYTES = 1024 * 1024
"""A diff has 200 lines of 500 characters at most, each up to twelve bytes of JSON."""
_ENVIRONMENT = ("PATH", "TMPDIR")
"""No more of it: an operator may keep secrets there."""
_PROGRAM = (
    "import sys; lifeline, *sys.path[:] = sys.argv[1:]; "
    "from fumehood_server.replay.process import main; sys.exit(main([lifeline]))"
)
_VERDICTS = {
    "verified": pb.REPLAY_VERDICT_VERIFIED,
    "diverged": pb.REPLAY_VERDICT_DIVERGED,
    "not_run": pb.REPLAY_VERDICT_NOT_RUN,
}
_KINDS = {
    "kind": pb.DIVERGENCE_KIND_KIND,
    "payload": pb.DIVERGENCE_KIND_PAYLOAD,
    "order": pb.DIVERGENCE_KIND_ORDER,
    "exhausted": pb.DIVERGENCE_KIND_EXHAUSTED,
}


def read_run_name(request: pb.ReplayRunRequest) -> str:
    """The run that is asked for.

    Raises:
        RefusedError: it names none.
    """
    if not request.run:
        raise invalid("run is required: a request_id, a session_id or a call_id")
    if len(request.run.encode()) > MAX_RUN_BYTES:
        raise invalid(f"run is longer than {MAX_RUN_BYTES} bytes")
    return request.run


async def replayed(run: str, reads: JournalReads, checks: DocumentChecks) -> AsyncGenerator[bytes, None]:
    """Recorded outcomes, serialised, and then the summary.

    Raises:
        RefusedError: nothing is recorded of the run.
        StoreError: the journal can't be read.
    """
    pages, results = RunPages(run), ResultWriter()
    count = 0

    def read(reader: Reader) -> tuple[int, list[bytes]]:
        calls = pages.read(reader)
        return len(calls), [*_messages(calls, results)]

    while not pages.done:
        read_now, messages = await reads.search(read)
        count += read_now
        for message in messages:
            yield message
    found = await _replayed_run(run, reads, checks)
    if not count and found is None:
        raise run_not_found(run)
    yield pb.ReplayRunResponse(summary=pb.ReplaySummary(calls=count, run=found)).SerializeToString()


async def verified(
    run: str, reads: JournalReads, checks: DocumentChecks, config: SidecarConfig
) -> AsyncGenerator[bytes, None]:
    """What comes of each call, serialised, and then the summary. Leaving it ends every process.

    Raises:
        RefusedError: nothing is recorded of the run, or the process that runs it has died.
        StoreError: the journal can't be read.
    """
    pages = RunPages(run)
    first = await reads.search(pages.read)
    while not first and not pages.done:
        first = await reads.search(pages.read)
    found = await _replayed_run(run, reads, checks)
    if not first:
        if found is None:
            raise run_not_found(run)
        yield pb.ReplayRunResponse(summary=pb.ReplaySummary(run=found)).SerializeToString()
        return
    ours, theirs = socket.socketpair()
    with ours:
        lifeline, held = os.pipe()
        with theirs:
            try:
                process = _launch(theirs, lifeline)
            except BaseException:
                os.close(held)
                raise
            finally:
                os.close(lifeline)
        try:
            lines, writer = await asyncio.open_unix_connection(sock=ours, limit=_LINE_BYTES)
            with contextlib.closing(writer):
                sending = asyncio.create_task(_send(writer, first, pages, reads, config))
                try:
                    async for message in _verdicts(lines, found):
                        yield message
                finally:
                    sending.cancel()
                    await asyncio.wait((sending,))
                    if not sending.cancelled():
                        sending.result()
        except (OSError, ValueError) as exc:  # half a line
            raise _process_died() from exc
        finally:
            os.close(held)
            await asyncio.shield(asyncio.to_thread(_end, process))


async def _replayed_run(run: str, reads: JournalReads, checks: DocumentChecks) -> pb.ReplayedRun | None:
    """What comes of carrying a model's run out again. None: there is none of this id."""
    try:
        found = await replay_run(reads, checks, run)
    except JournalUnavailableError as exc:
        raise RefusedError(Refusal(RefusalReason.JOURNAL_UNAVAILABLE, str(exc))) from exc
    if found is None:
        return None
    verdict = "not_run" if found.not_run else "diverged" if found.differs else "verified"
    return pb.ReplayedRun(verdict=_VERDICTS[verdict], differs=found.differs, not_run_because=found.not_run)


def run_not_found(run: str) -> RefusedError:
    """Nothing is recorded of it."""
    return RefusedError(Refusal(RefusalReason.RUN_NOT_FOUND, f'no run, session or call "{run}" is recorded'))


async def _send(
    writer: asyncio.StreamWriter,
    first: Sequence[ReplayableCall],
    pages: RunPages,
    reads: JournalReads,
    config: SidecarConfig,
) -> None:
    """Hand the calls to the process, no faster than it takes them."""
    try:
        writer.write(await asyncio.to_thread(frame, sent_config(config)))
        writer.write(await asyncio.to_thread(frame, first))
        await writer.drain()
        while not pages.done:
            writer.write(await reads.search(lambda reader: frame(pages.read(reader))))
            await writer.drain()
        writer.write(END_FRAME)
        await writer.drain()
    except BaseException:
        writer.close()  # it ends then, and with it who waits for its words
        raise


async def _verdicts(lines: asyncio.StreamReader, run: pb.ReplayedRun | None) -> AsyncGenerator[bytes, None]:
    summary = pb.ReplaySummary(run=run)
    async for line in lines:
        said = orjson.loads(line)
        if said is None:
            yield pb.ReplayRunResponse(summary=summary).SerializeToString()
            return
        summary.calls += 1
        name = said["verdict"]
        setattr(summary, name, getattr(summary, name) + 1)
        yield pb.ReplayRunResponse(calls=[_verdict(said)]).SerializeToString()
    raise _process_died()


def _verdict(said: Mapping[str, Any]) -> pb.ReplayedCall:
    call = pb.ReplayedCall(
        call_id=said["call_id"], tool=said["tool"], verdict=_VERDICTS[said["verdict"]], not_run_because=said["why"]
    )
    found = said["divergence"]
    if found is not None:
        call.divergence.kind = _KINDS[found["kind"]]
        call.divergence.message, call.divergence.diff = found["message"], found["diff"]
    return call


def _messages(calls: Sequence[ReplayableCall], results: ResultWriter) -> list[bytes]:
    """On a thread of `reads`: calls as messages of bounded size."""
    messages: list[bytes] = []
    response, size = pb.ReplayRunResponse(), 0
    for each in calls:
        call = _recorded(each, results)
        length = call.ByteSize()
        if size and size + length > _MESSAGE_BYTES:
            messages.append(response.SerializeToString())
            response, size = pb.ReplayRunResponse(), 0
        response.calls.append(call)
        size += length
    return [*messages, response.SerializeToString()] if size else messages


def _recorded(call: ReplayableCall, results: ResultWriter) -> pb.ReplayedCall:
    recorded = call.recorded
    message = pb.ReplayedCall(
        call_id=call.call_id,
        tool=call.tool,
        state=STATES[recorded.state],
        result_removed=recorded.outcome is not None and recorded.removed,
    )
    if recorded.outcome is not None:
        results.fill(message.result, recorded.outcome)
    return message


def _launch(stream: socket.socket, lifeline: int) -> subprocess.Popen[bytes]:
    # Not by the loop: see `journal_verifying`.
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _PROGRAM, str(lifeline), *import_path()],
        stdin=stream.fileno(),
        stdout=stream.fileno(),
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        start_new_session=True,
        pass_fds=(lifeline,),
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the process, whose lifeline is closed. Its sandboxes die with it where it has to be killed."""
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _process_died() -> RefusedError:
    text = "the process that ran the calls again has ended before it was done: try again"
    return RefusedError(Refusal(RefusalReason.REPLAY_FAILED, text))
