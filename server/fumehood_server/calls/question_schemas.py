"""Checks the schemas of questions in a thread: one at a time, in turns of plugins, with a rest after each.

A thread that computes keeps the interpreter from the event loop for half a millisecond at a time, and several at once
each in its turn: six of them had calls of others wait for seconds. A plugin may send thousands of questions a second.
"""

from __future__ import annotations

import asyncio
import time

from fumehood_server.model.fair_lock import FairLock
from fumehood_server.model.schema import check_schema
from fumehood_server.validation.budget import INLINE

_RESTS = 4
"""So many times as long as a check took, it is nobody's turn."""
_LONGEST_REST_S = 0.1


class QuestionSchemas:
    """For one event loop."""

    def __init__(self) -> None:
        """It is nobody's turn."""
        self._turns = FairLock()

    async def check(self, schema_json: str, *, plugin: str) -> None:
        """Check one of a question that `plugin` asks.

        Raises:
            SchemaError: nobody is to be asked that.
        """
        most = INLINE.pattern_states  # a form for people needs few
        async with self._turns.hold(plugin):
            begun = time.monotonic()
            try:
                await asyncio.to_thread(check_schema, schema_json, arguments=True, max_states=most)
            finally:
                await asyncio.sleep(min(_RESTS * (time.monotonic() - begun), _LONGEST_REST_S))
