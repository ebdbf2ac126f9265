"""Conversations of several runs: what was said is read from the journal, and trimmed to what a model is to be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from fumehood_server.errors import JournalUnavailableError, Refusal, RefusalReason, RefusedError
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.reads import JournalReads
from fumehood_server.journal.store import EventFilter, Reader, StoreError, read_payload
from fumehood_server.model.caller import Caller, recorded_name
from fumehood_server.model.run_events import SessionTurn
from fumehood_server.orchestration.messages import Message, Role, messages_from_json

_PAGE = 200
MAX_TURNS = 2_000
"""Of one session. A conversation that is longer begins anew under another id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPolicy:
    """How much of a conversation a model is told. The oldest runs are left out first, each whole."""

    messages: int = 200
    bytes: int = 256 * 1024


@dataclass(frozen=True, slots=True)
class Turn:
    """What one run has added."""

    run_id: str
    messages: tuple[Message, ...]

    @property
    def size(self) -> int:
        """About how many bytes it has."""
        return sum(each.size for each in self.messages)


async def read_history(
    reads: JournalReads, session_id: str, caller: Caller, policy: HistoryPolicy
) -> tuple[Message, ...]:
    """What was said in a session before, as far as the policy goes.

    Raises:
        RefusedError: it is another caller's session, or is too long, or some of it is no longer kept.
        JournalUnavailableError: the journal can't be read now.
    """
    try:
        turns = await reads.run(lambda reader: _turns(reader, session_id, caller, policy))
    except StoreError as exc:
        raise JournalUnavailableError(str(exc)) from exc
    except (KeyError, TypeError, ValueError) as exc:
        raise JournalUnavailableError(f"the session's record can't be read: {type(exc).__name__}") from exc
    return trimmed(turns, policy)


def trimmed(turns: Sequence[Turn], policy: HistoryPolicy) -> tuple[Message, ...]:
    """The newest turns that fit the policy, and the instructions (`SYSTEM`) of those that don't."""
    kept: list[Turn] = []
    count = size = 0
    for turn in reversed(turns):
        count += len(turn.messages)
        size += turn.size
        if count > policy.messages or size > policy.bytes:
            break
        kept.append(turn)
    left_out = turns[: len(turns) - len(kept)]
    instructions = [each for turn in left_out for each in turn.messages if each.role is Role.SYSTEM]
    return (*instructions, *(each for turn in reversed(kept) for each in turn.messages))


def _turns(reader: Reader, session_id: str, caller: Caller, policy: HistoryPolicy) -> list[Turn]:
    wanted = EventFilter(types=frozenset({SessionTurn.TYPE}), subjects=(session_id,))
    found, after = [], -1
    while page := reader.events(wanted, after=after, limit=_PAGE):
        found += page
        after = page[-1].position
        if len(found) > MAX_TURNS:
            raise _refused(session_id, f"has more than {MAX_TURNS} runs: begin another session")
    turns: list[Turn] = []
    size, seen = 0, set()
    for event in reversed(found):  # the newest, until there is more than the policy allows
        data = decode(event.body)["data"]
        if recorded_name(data["caller"]) != caller.name:
            raise _refused(session_id, "is another caller's: choose another id, with something random in it")
        if data["run"] in seen:
            continue  # of a sidecar that was taken for dead, and came back
        seen.add(data["run"])
        payload = read_payload(reader, event)
        if payload is None:
            raise _refused(session_id, "is no longer kept whole (retention): begin another session")
        turns.insert(0, Turn(data["run"], messages_from_json(orjson.loads(payload))))
        size += len(payload)
        if size > 2 * policy.bytes:
            break
    return turns


def _refused(session_id: str, why: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.SESSION_REFUSED, f'the session "{session_id}" {why}'))
