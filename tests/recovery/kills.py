"""Kills a sidecar again and again, repeats what was not answered, and looks for what must not be.

What must not be: an acknowledged outcome of a tool with effects that is lost or another one afterwards; a call with
two outcomes or none; a tool with effects that ran twice under one id; a journal that is not the continuation of each
checkpoint seen before.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_evidence import merkle, note
from fumehood_evidence.checkpoint import Checkpoint
from fumehood_evidence.note import Verifier
from fumehood_server.config.database import Database
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.place import Place, place_of
from fumehood_server.journal.sql import SqlReader
from fumehood_server.journal.store import load_tree
from fumehood_server.journal.verify import verify

from examples.clients.python.session import Session, SessionEndedError
from tests.sidecar import Sidecar, running_sidecar, write_plugin

if TYPE_CHECKING:
    from fumehood.v1.tool_service_pb2_grpc import ToolServiceAsyncStub as Stub  # what ToolServiceStub makes here

CODE = """
from pathlib import Path
from fumehood_sdk import Plugin

plugin = Plugin("ledger", version="1.0.0")


def _enter(folder: str, line: str) -> None:
    with (Path(folder) / "entries").open("a") as file:
        file.write(line + "\\n")


@plugin.tool(side_effects="write", isolation="process")
def enter_warm(folder: str, line: str) -> str:
    \"\"\"Adds a line, in a process that serves many calls.\"\"\"
    _enter(folder, line)
    return line


@plugin.tool(side_effects="write", isolation="call")
def enter_fresh(folder: str, line: str) -> str:
    \"\"\"Adds a line, in a process of its own.\"\"\"
    _enter(folder, line)
    return line


@plugin.tool(side_effects="write", idempotent=True, isolation="process")
def put(folder: str, line: str) -> str:
    \"\"\"Writes a file, which may be done twice.\"\"\"
    (Path(folder) / line).write_text(line)
    return line


@plugin.tool(side_effects="none", isolation="process")
def repeat(folder: str, line: str) -> str:
    \"\"\"Has no effects.\"\"\"
    return line * 20
"""
TOOLS = ("enter_warm", "enter_fresh", "repeat", "put")
ENTER = frozenset(TOOLS[:2])
"""Must not run twice."""
CALLERS = 6
LONGEST_S = 2.5
"""From a sidecar's readiness to its death, at most."""
DURING_START = 0.2
"""Share of the sidecars that are killed before they serve, most of them while they recover."""
CALL_S = 30.0
SETTLED_S = 1.0
"""What a tool without effects answered is on disk 50 ms later, and with room for a slow disk by now."""

Said = tuple[str, str, bool]
"""What a caller was told: the structured output, the error's code, and whether the outcome is unknown."""


class LostError(AssertionError):
    """Something is not as it was promised."""


@dataclass
class Seen:
    """What the callers know, over all sidecars."""

    acknowledged: dict[str, Said] = field(default_factory=dict)
    unanswered: dict[str, pb.CallToolRequest] = field(default_factory=dict)
    fresh: dict[str, float] = field(default_factory=dict)
    """Calls without effects that were answered in this sidecar's life, and when."""
    checkpoints: list[str] = field(default_factory=list)
    repeated: Counter[str] = field(default_factory=Counter)
    """How the repetitions of unanswered calls ended."""


@dataclass(frozen=True)
class _Run:
    """What all lives share."""

    folder: Path
    entries: Path
    place: Place
    plugin: tuple[Path, str]
    more: str
    chance: random.Random
    longest_s: float
    least: int
    seen: Seen
    other: Sidecar | None
    """Lives all the time, where sidecars share the journal."""


def kill_again_and_again(
    folder: Path,
    kills: int,
    seed: int,
    say: Callable[[str], None],
    *,
    url: str = "",
    longest_s: float = LONGEST_S,
    least: int = 0,
) -> Seen:
    """Do it. `folder` is empty and short, and any user may pass through it.

    `least`: how many calls each sidecar that serves answers before the random time to its death begins.

    `url`: of the PostgreSQL database where the journal lies. Another sidecar then lives there all the time, settles
    calls of those that are killed as well, and is sent some of them again.

    Raises:
        LostError: what was promised is not so.
    """
    chance, seen = random.Random(seed), Seen()  # noqa: S311 - moments, not secrets
    entries = folder / "entries"
    entries.mkdir(mode=0o777)
    entries.chmod(0o777)
    tools = "".join(f'[plugin.tools.{name}]\npermission = "allow"\n' for name in TOOLS)
    plugin = (
        write_plugin(folder / "plugin", "ledger", CODE),
        f'max_side_effects = "write"\nwrite = ["{entries}"]\n{tools}',
    )
    more = f'[journal]\nstore = "{url}"\n' if url else ""
    place = place_of(folder / ".fumehood", Database(url) if url else None)
    with contextlib.ExitStack() as stack:
        other = None
        if url:
            (folder / "other").mkdir()
            other = stack.enter_context(running_sidecar([plugin], more=more, at=folder / "other"))
        run = _Run(folder, entries, place, plugin, more, chance, longest_s, least, seen, other)
        return _kill(run, kills, say)


def _kill(run: _Run, kills: int, say: Callable[[str], None]) -> Seen:
    folder, seen, chance = run.folder, run.seen, run.chance
    command: list[str] = []
    for turn in range(kills):
        if command and chance.random() < DURING_START:
            with (folder / "stderr").open("ab") as log:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
            time.sleep(chance.uniform(0.0, run.longest_s))
            process.kill()
            process.wait()
        else:
            with running_sidecar([run.plugin], more=run.more, at=folder) as sidecar:
                command = [str(each) for each in sidecar.process.args]  # type: ignore[union-attr] # a list, by `Popen`
                asyncio.run(_one_life(sidecar, run, turn, chance.uniform(0.0, run.longest_s)))
        say(f"{turn + 1}: {len(seen.acknowledged)} acknowledged, {len(seen.unanswered)} to be repeated")
    with running_sidecar([run.plugin], more=run.more, at=folder) as sidecar:
        asyncio.run(_settle(sidecar, run))
        asyncio.run(_compare(sidecar, seen, list(seen.acknowledged)))
        sidecar.signal()
        sidecar.wait()
    _check_journal(folder, run.place, seen)
    return seen


async def _one_life(sidecar: Sidecar, run: _Run, turn: int, life_s: float) -> None:
    """Check what the last one left, put on load, and kill it."""
    seen = run.seen
    await _settle(sidecar, run)
    enough = len(seen.acknowledged) + run.least
    async with sidecar.channel() as channel:
        stub = ToolServiceStub(channel)
        callers = [
            asyncio.create_task(_call(stub, run, f"{turn}-{number}", in_session=number % 3 == 0))
            for number in range(CALLERS)
        ]
        async with asyncio.timeout(CALL_S):
            while len(seen.acknowledged) < enough:  # noqa: ASYNC110 - callers tell nobody else
                await asyncio.sleep(0.01)
        await asyncio.sleep(life_s)
        seen.checkpoints += await asyncio.to_thread(_newest_checkpoint, run.place, public_keys(folder_of(sidecar)))
        sidecar.signal(signal.SIGKILL)
        sidecar.wait()
        killed_at = time.monotonic()
        async with asyncio.timeout(CALL_S):
            await asyncio.gather(*callers)
    for call_id, answered_at in seen.fresh.items():
        if answered_at > killed_at - SETTLED_S:  # it may not be on disk, and need not
            del seen.acknowledged[call_id]
    seen.fresh.clear()


async def _call(stub: Stub, run: _Run, name: str, *, in_session: bool) -> None:
    """Call one tool after another until the sidecar is gone."""
    seen, entries = run.seen, run.entries
    session = await Session(stub.Session()).__aenter__() if in_session else None  # type: ignore[call-arg] # written to
    number = 0
    while True:
        number += 1
        call_id = f"{name}-{number}"
        arguments = json.dumps({"folder": str(entries), "line": call_id})
        request = pb.CallToolRequest(tool=TOOLS[number % len(TOOLS)], arguments_json=arguments, call_id=call_id)
        if request.tool == "put" and session is None:  # a session's client has no word for it
            request.retry.after_crash = True
        try:
            if session is None:
                result = (await stub.CallTool(request, timeout=CALL_S)).result
            else:
                result = await session.call(request.tool, arguments, call_id=call_id)
        except (grpc.aio.AioRpcError, SessionEndedError, asyncio.InvalidStateError, ConnectionError):
            seen.unanswered[call_id] = request
            return
        seen.acknowledged[call_id] = _said(result)
        if request.tool == "repeat":
            seen.fresh[call_id] = time.monotonic()


async def _settle(sidecar: Sidecar, run: _Run) -> None:
    """Repeat each call that was not answered, under its id, and look at the effects."""
    seen, entries = run.seen, run.entries
    async with sidecar.channel() as channel, (run.other or sidecar).channel() as other:
        stubs = ToolServiceStub(channel), ToolServiceStub(other)
        for call_id, request in list(seen.unanswered.items()):
            stub = run.chance.choice(stubs)
            said = _said((await stub.CallTool(request, timeout=CALL_S, wait_for_ready=True)).result)
            seen.repeated[said[1] or "succeeded"] += 1
            if request.retry.after_crash and (said[1] or not (entries / call_id).exists()):
                raise LostError(f"{call_id} may run again, and ended with {said}")
            seen.acknowledged[call_id] = said
            del seen.unanswered[call_id]
        await _compare(sidecar, seen, list(seen.acknowledged)[-20:])
    path = entries / "entries"
    ran = Counter(path.read_text().split()) if path.exists() else Counter()
    twice = [call_id for call_id, times in ran.items() if times > 1]
    if twice:
        raise LostError(f"ran twice under one id: {twice}")
    for call_id, (_, code, _) in seen.acknowledged.items():
        if not code and ran[call_id] != 1 and TOOLS[int(call_id.rpartition("-")[2]) % len(TOOLS)] in ENTER:
            raise LostError(f"{call_id} succeeded, and has no effect")


async def _compare(sidecar: Sidecar, seen: Seen, call_ids: list[str]) -> None:
    """What was acknowledged is what `GetCall` says."""
    async with sidecar.channel() as channel:
        stub = ToolServiceStub(channel)
        for call_id in call_ids:
            recorded = _said((await stub.GetCall(pb.GetCallRequest(call_id=call_id), timeout=CALL_S)).result)
            if recorded != seen.acknowledged[call_id]:
                raise LostError(f"{call_id} was told {seen.acknowledged[call_id]}, and recorded is {recorded}")


def _said(result: tool_pb2.ToolResult) -> Said:
    unknown = bool(json.loads(result.error.details_json or "{}").get("outcome_unknown"))
    return result.details_json, result.error.code, unknown


def folder_of(sidecar: Sidecar) -> Path:
    return sidecar.folder / ".fumehood"


def _newest_checkpoint(place: Place, keys: list[Verifier]) -> list[str]:
    with contextlib.closing(place.open_reader()) as reader:
        found = reader.checkpoint(0, signer=keys[0].name)
        return [] if found is None else [found]


def _check_journal(folder: Path, place: Place, seen: Seen) -> None:
    """One outcome for each call, an unbroken tree, and the continuation of every checkpoint."""
    keys: list[Verifier] = list(public_keys(folder / ".fumehood"))
    with contextlib.closing(place.open_reader()) as reader, reader.snapshot():
        counts, found = reader.counts(), verify(reader, keys)
        if found.fault is not None:
            raise LostError(f"the journal is not what was signed: {found.fault}")
        if counts.calls != counts.ended:
            raise LostError(f"{counts.calls - counts.ended} calls have no outcome")
        if reader.last("events_lost") is not None:
            raise LostError("events were lost")
    with contextlib.closing(place.open_reader()) as reader:
        assert isinstance(reader, SqlReader)
        sql = (
            "SELECT subject, count(*) FROM events WHERE type IN ('execute_end', 'execute_cancelled') "
            "GROUP BY subject HAVING count(*) <> 1"
        )
        several = [*reader.rows(sql)]
        known = {row[0] for row in reader.rows("SELECT call_id FROM calls")}
    if several:
        raise LostError(f"calls with several outcomes: {several}")
    if missing := seen.acknowledged.keys() - known:
        raise LostError(f"acknowledged and not recorded: {sorted(missing)}")
    tree = load_tree(place.open_reader())
    with contextlib.closing(place.open_reader()) as reader:
        subtree = tree.reader(reader.tile)
        for text in seen.checkpoints:
            handed = Checkpoint.parse(note.opened(text, keys).text)
            proof = merkle.consistency_proof(handed.size, tree.size, subtree)
            merkle.verify_consistency(handed.size, handed.root, tree.size, tree.root(), proof)
