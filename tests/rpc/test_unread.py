"""What callers have not read: which connection is closed for it."""

from __future__ import annotations

from fumehood_server.rpc.unread import CLOSE_ABOVE_BYTES, UnreadAnswers

HEAVY, LIGHT, OTHER = "ipv4:127.0.0.1:1", "ipv4:127.0.0.1:2", "ipv4:127.0.0.1:3"
ANSWER = CLOSE_ABOVE_BYTES // 8


def test_a_connection_that_is_being_closed_does_not_have_the_next_one_closed() -> None:
    closed: list[str] = []
    unread = UnreadAnswers(closed.append)
    for caller in [HEAVY] * 5 + [LIGHT] * 3:
        unread.add(caller, ANSWER)
    assert closed == []
    unread.add(OTHER, ANSWER)
    assert closed == [HEAVY]
    for _ in range(3):
        unread.remove(HEAVY, ANSWER)
    for _ in range(3):
        unread.add(OTHER, ANSWER)
    assert closed == [HEAVY], "it holds less than the others now, and all of it is going"
    for _ in range(2):
        unread.remove(HEAVY, ANSWER)
    unread.add(LIGHT, ANSWER)
    assert closed == [HEAVY]
    unread.add(LIGHT, ANSWER)
    assert closed == [HEAVY, LIGHT]
