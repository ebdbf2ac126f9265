"""Who wins a vote, by each rule, whatever the order in which votes came."""

from __future__ import annotations

import pytest
from fumehood_server.orchestration.modes.voting import decide, grouped
from fumehood_server.orchestration.request import Consensus
from hypothesis import given
from hypothesis import strategies as st

M, U, P = Consensus.MAJORITY, Consensus.UNANIMOUS, Consensus.PLURALITY


@pytest.mark.parametrize(
    ("votes", "asked", "winners"),
    [
        ("aaa", 3, {M: (1, 2, 3), U: (1, 2, 3), P: (1, 2, 3)}),
        ("aab", 3, {M: (1, 2), U: None, P: (1, 2)}),
        ("abb", 3, {M: (2, 3), U: None, P: (2, 3)}),
        ("abc", 3, {M: None, U: None, P: (1,)}),
        ("aabb", 4, {M: None, U: None, P: (1, 2)}),
        ("baab", 4, {M: None, U: None, P: (1, 4)}),
        ("aa", 3, {M: (1, 2), U: None, P: (1, 2)}),
        ("aa", 4, {M: None, U: None, P: (1, 2)}),
        ("a", 2, {M: None, U: None, P: (1,)}),
        ("aa", 2, {M: (1, 2), U: (1, 2), P: (1, 2)}),
        ("", 3, {M: None, U: None, P: None}),
    ],
)
def test_a_vote_is_won_by_its_rule(votes: str, asked: int, winners: dict[Consensus, tuple[int, ...] | None]) -> None:
    groups = grouped(dict(enumerate(votes, start=1)))
    found = {rule: decide(groups, asked, rule) for rule in Consensus}
    assert {rule: group and group.replicas for rule, group in found.items()} == winners


@given(st.dictionaries(st.integers(1, 16), st.sampled_from("abc")), st.randoms(use_true_random=False))
def test_the_order_in_which_votes_come_changes_nothing(votes: dict[int, str], random: object) -> None:
    shuffled = list(votes.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis's Random
    assert grouped(dict(shuffled)) == grouped(votes)
