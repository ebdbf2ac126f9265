"""`VerifyJournal`: a process that reads the whole journal, and what it says as messages."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import orjson
from fumehood.v1 import journal_service_pb2 as pb
from fumehood_evidence.errors import NoteError
from fumehood_evidence.note import Verifier

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.journal.keys import JournalKeyError
from fumehood_server.journal.reads import JournalReads
from fumehood_server.launches import import_path
from fumehood_server.rpc.journal_requests import MAX_NAMES, invalid
from fumehood_server.secrets import SecretUnavailableError

_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from fumehood_server.journal.verify_process import main; sys.exit(main())"
)


async def read_keys(given: Sequence[str], reads: JournalReads) -> list[Verifier]:
    """The caller's public keys, or the sidecar's own where it gives none.

    Raises:
        RefusedError: one is none, or the sidecar's can't be read.
    """
    if len(given) > MAX_NAMES:
        raise invalid(f"public_keys has more than {MAX_NAMES} entries")
    try:
        return [Verifier.parse(each) for each in given] or list(await asyncio.to_thread(reads.keys))
    except NoteError as exc:
        raise invalid(f"public_keys: {exc}") from exc
    except JournalKeyError as exc:
        raise _unavailable(str(exc)) from exc


async def verification(keys: Sequence[Verifier], reads: JournalReads) -> AsyncGenerator[bytes, None]:
    """Progress, and then the verdict, serialised. Leaving it ends the process.

    Raises:
        RefusedError: the journal can't be read.
    """
    try:
        place, environment = await asyncio.to_thread(reads.place.for_process)
    except SecretUnavailableError as exc:
        raise _unavailable(str(exc)) from exc
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = _launch(theirs, environment)
        try:
            lines, writer = await asyncio.open_unix_connection(sock=ours)
            with contextlib.closing(writer):
                writer.write(orjson.dumps({"keys": [str(each) for each in keys], "place": place}) + b"\n")
                async for line in lines:
                    said = orjson.loads(line)
                    if isinstance(said, list):
                        progress = pb.VerifyProgress(verified_events=said[0], total_events=said[1])
                        yield pb.VerifyJournalResponse(progress=progress).SerializeToString()
                    elif "error" in said:
                        raise _unavailable(said["error"])
                    else:
                        yield pb.VerifyJournalResponse(verdict=_verdict(said)).SerializeToString()
                        return
            raise _unavailable("the process that verified it has ended")
        except (OSError, ValueError) as exc:  # half a line
            raise _unavailable(f"the process that verified it has ended: {exc}") from exc
        finally:
            process.kill()
            await asyncio.shield(asyncio.to_thread(process.wait))


def _launch(stream: socket.socket, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # Not by the loop, which forks by itself: gRPC does not support that, and Popen takes vfork(2). The environment is
    # what the journal takes: an operator may keep secrets there.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, *import_path()],
        stdin=stream.fileno(),
        stdout=stream.fileno(),
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=dict(environment),
        start_new_session=True,
    )


def _verdict(said: Mapping[str, Any]) -> pb.VerifyVerdict:
    fault = said["fault"]
    verdict = pb.VerifyVerdict(
        verified=fault is None,
        verified_events=said["events"],
        signed_events=said["signed"],
        payloads=said["payloads"],
        removed_events=said["removed_events"],
        removed_before=said["removed_up_to"],
    )
    if said["removed_up_to"]:
        verdict.removed_until.FromMicroseconds(said["removed_until_us"])
    if fault is not None:
        verdict.fault.problem = fault["problem"]
        if fault["position"] >= 0:
            verdict.fault.position = fault["position"]
    return verdict


def _unavailable(problem: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.JOURNAL_UNAVAILABLE, f"the journal can't be read: {problem}"))
