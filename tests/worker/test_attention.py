"""When a lone call's answer is looked for in place of slept over."""

import time

import pytest
from fumehood_server.worker import attention
from fumehood_server.worker.attention import FEWEST_LONE_CALLS, Attention


def lone_calls(subject: Attention, count: int) -> int:
    """Let calls come one after another, and pay the attention that is due. Returns how often it was."""
    paid = 0
    for _ in range(count):
        if subject.is_due(alone=True):
            subject.pay()
            paid += 1
    return paid


def test_only_who_calls_one_after_another_is_attended_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_PROCESSORS", 2)
    subject = Attention(lambda: True)
    assert lone_calls(subject, FEWEST_LONE_CALLS) == 0
    assert lone_calls(subject, 5) == 5
    assert not subject.is_due(alone=False)
    assert lone_calls(subject, FEWEST_LONE_CALLS) == 0
    assert lone_calls(subject, 1) == 1


def test_calls_that_follow_each_other_without_a_rest_are_many_and_not_attended_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attention, "_PROCESSORS", 2)
    subject = Attention(lambda: True)
    assert lone_calls(subject, FEWEST_LONE_CALLS + 1) == 1
    subject.answered_at = time.monotonic() + 1.0  # an answer that came since
    assert lone_calls(subject, FEWEST_LONE_CALLS * 2) == 0
    subject.answered_at = 0.0
    assert lone_calls(subject, FEWEST_LONE_CALLS + 1) == 1


def test_answers_that_take_longer_are_looked_for_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_PROCESSORS", 2)
    quick = False
    subject = Attention(lambda: quick)
    lone_calls(subject, FEWEST_LONE_CALLS)
    assert lone_calls(subject, 1000) < 12
    quick = True
    assert lone_calls(subject, attention.MOST_SKIPPED + 1) > 0
    assert lone_calls(subject, 100) == 100


def test_with_one_processor_the_tool_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_PROCESSORS", 1)
    assert lone_calls(Attention(lambda: True), 100) == 0
