"""Forked runs that go on here: matches their calls with recorded ones, each of which is given once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.call import CallRequest
from fumehood_server.model.forks import Fork, ForkCall
from fumehood_server.model.journal import Journal

MAX_FORKS = 16
"""In memory. Others are read again from the journal, which has what each has given."""


class Forks:
    """The forks that were asked for last. For one event loop."""

    def __init__(self, journal: Journal) -> None:
        """`journal` has them."""
        self._journal = journal
        self._plans: dict[str, ForkPlan] = {}
        """The one asked for last at the end."""
        self._reading = asyncio.Lock()

    async def plan(self, run_id: str) -> ForkPlan:
        """What a forked run has yet to give.

        Raises:
            RefusedError: no such fork is recorded, so that nobody knows what its calls stand for.
            JournalUnavailableError: the journal can't be read.
        """
        async with self._reading:
            plan = self._plans.pop(run_id, None)
            if plan is None:
                fork = await self._journal.fork(run_id)
                if fork is None:
                    text = f'no fork "{run_id}" is recorded here, so nobody knows what its calls stand for'
                    raise RefusedError(Refusal(RefusalReason.RUN_NOT_FOUND, text))
                plan = ForkPlan(fork)
            self._plans[run_id] = plan
            if len(self._plans) > MAX_FORKS:
                idle = next((each for each in self._plans.values() if not each.giving), None)
                if idle is not None:
                    del self._plans[idle.run_id]
            return plan


class ForkPlan:
    """What one forked run has given and has yet to give."""

    def __init__(self, fork: Fork) -> None:
        """As the journal has it."""
        self.run_id = fork.run_id
        self.giving = 0
        """Calls that are being answered, whose events are not on disk yet."""
        self._source_run = fork.source_run
        self._later = fork.later
        self._calls = {each.call_id: each for each in fork.calls}
        self._given = dict(fork.served)
        """The recorded call, by the id of the call that it was given to."""
        given = set(self._given.values())
        self._left = {each.call_id: each for each in fork.calls if each.call_id not in given}
        self._by_arguments: dict[tuple[str, str], deque[ForkCall]] = {}
        for each in self._left.values():
            self._by_arguments.setdefault((each.tool, each.arguments_hash), deque()).append(each)

    def was_given(self, call_id: str) -> bool:
        """Whether the call of this id has its outcome from the record already."""
        return call_id in self._given

    def take(self, request: CallRequest, hashes: Collection[str]) -> ForkCall | None:
        """The recorded call that a call stands for; None: it is of after the fork, and runs.

        `hashes`: by which its arguments may be recorded. Who takes one that was not given before gives it, or puts it
        back.

        Raises:
            RefusedError: it stands for none of those that were not given yet, and is none of after the fork.
        """
        source = self._given.get(request.call_id)
        named = self._calls.get(source or request.call_id) if request.is_named else None
        if named is not None:
            if named.tool != request.tool or named.arguments_hash not in hashes:
                raise self._mismatch(request, named)
            if source is None and named.call_id not in self._left:
                text = f'the outcome of "{named.call_id}" was given to another call of run "{self.run_id}"'
                raise RefusedError(Refusal(RefusalReason.CALL_ID_IN_USE, text))
            found: ForkCall | None = named
        else:
            found = self._first(request.tool, hashes)
        if found is not None:
            self._left.pop(found.call_id, None)
            self._given[request.call_id] = found.call_id
            return found
        if self._left and not any((request.tool, each) in self._later for each in hashes):
            same_tool = (each for each in self._left.values() if each.tool == request.tool)
            raise self._mismatch(request, next(same_tool, None) or next(iter(self._left.values())))
        return None

    def put_back(self, call_id: str, taken: ForkCall) -> None:
        """It was not given to the call of this id."""
        del self._given[call_id]
        self._left[taken.call_id] = taken
        self._by_arguments.setdefault((taken.tool, taken.arguments_hash), deque()).appendleft(taken)

    def _first(self, tool: str, hashes: Collection[str]) -> ForkCall | None:
        for each in hashes:
            calls = self._by_arguments.get((tool, each))
            while calls:
                call = calls.popleft()
                if call.call_id in self._left:
                    return call
        return None

    def _mismatch(self, request: CallRequest, expected: ForkCall) -> RefusedError:
        differs = "arguments" if expected.tool == request.tool else "tool"
        text = (
            f'"{request.call_id}" of {request.tool[:64]} is no call that run "{self._source_run}" made before it was '
            f'forked: the record has "{expected.call_id}" of {expected.tool[:64]} (event {expected.position}) there, '
            f"{'with other arguments' if differs == 'arguments' else 'another tool'}. Nothing ran: give the run what "
            "it had, or fork it at an earlier event"
        )
        given = {
            "expected_call_id": expected.call_id,
            "expected_tool": expected.tool[:64],
            "position": str(expected.position),
            "differs": differs,
        }
        return RefusedError(Refusal(RefusalReason.FORK_MISMATCH, text, given))
