"""Looks at a server's list that fail leave it unknown after a minute of calls, not of the clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from fumehood_sdk.adapters.mcp import relisting
from fumehood_sdk.adapters.mcp.connection import Answered, ServerConnection
from fumehood_sdk.adapters.mcp.log_lines import LogLines
from fumehood_sdk.adapters.mcp.negotiation import Session
from fumehood_sdk.wire.sidecar_frames import Invoke

HOUR_S = 3600.0


class Looks:
    """A list that is looked at where calls come, by a clock of the test's, on a server that refuses each look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(relisting, "time", SimpleNamespace(monotonic=lambda: self.now))
        session = Session("2025-11-25", {}, b"")
        session.is_remote = True
        self.answered: Answered | None = None
        self.list = relisting.Relisting(cast("ServerConnection", self), session, {"echo": ("", b"")}, LogLines())
        self.now += relisting.TIMED_RELIST_S

    def request(self, _method: str, _params: bytes, answered: Answered) -> int:
        self.answered = answered
        return 1

    def notify(self, _method: str, _params: bytes) -> None:
        """Nobody takes it."""

    def abandon(self, _number: int, *, is_call: bool) -> None:
        assert not is_call
        self.answered = None

    def fail(self) -> bool:
        """Call, and have a look refused where one is due. Whether one was."""
        if not self.list.hold_if_looking(Invoke()):
            return False
        assert self.answered is not None
        self.answered({"id": 1, "error": {"code": -32603, "message": "not now"}})
        return True

    def fail_until_unknown(self) -> float:
        """Call each second. Returns for how many."""
        begun = self.now
        while not self.list.is_unknown:
            assert self.now < begun + HOUR_S
            self.now += 1.0
            self.fail()
        return self.now - begun


def test_silence_between_two_looks_that_fail_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    assert looks.fail()
    looks.now += HOUR_S
    assert looks.fail()
    assert not looks.list.is_unknown
    assert looks.fail_until_unknown() <= relisting.UNKNOWN_AFTER_S


def test_calls_that_are_hours_apart_come_to_a_minute_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    failed = 0
    while not looks.list.is_unknown:
        assert looks.fail()
        looks.now += HOUR_S
        failed += 1
    assert failed == 6, "after 2, 4, 8, 16 and 30 s, as where calls come all the time"


def test_time_in_which_the_process_is_frozen_in_a_look_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    assert looks.fail()
    looks.now += relisting.RETRY_PAUSE_S
    frame = Invoke()
    assert looks.list.hold_if_looking(frame)
    assert looks.list.release(frame.invocation_id)  # cancelled: without calls the sidecar may freeze the process
    looks.now += HOUR_S
    looks.list.look_if_due(looks.now)
    assert looks.answered is None, "it is over"
    assert not looks.list.is_unknown
    assert looks.fail_until_unknown() <= relisting.UNKNOWN_AFTER_S
