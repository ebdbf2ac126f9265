"""When a lone call's answer is looked for in place of slept over."""

from fumehood_server.worker import attention
from fumehood_server.worker.attention import Attention


def lone_calls(subject: Attention, count: int) -> int:
    """Let calls come one after another, and pay the attention that is due. Returns how often it was."""
    paid = 0
    for _ in range(count):
        if subject.is_due():
            subject.pay()
            paid += 1
    return paid


def test_answers_are_looked_for_while_they_come_soon() -> None:
    assert lone_calls(Attention(lambda: True), 1000) == 1000


def test_answers_that_take_longer_are_looked_for_ever_more_seldom() -> None:
    quick = False
    subject = Attention(lambda: quick)
    assert 0 < lone_calls(subject, 1000) < 12
    quick = True
    assert lone_calls(subject, attention.MOST_SKIPPED + 1) > 0
    assert lone_calls(subject, 100) == 100
