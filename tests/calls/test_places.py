"""Places that callers share: nobody can have all of them, whoever came first."""

from __future__ import annotations

import pytest
from fumehood_server.calls.places import UNIX_SHARE, SharedPlaces

TOTAL = 256
UNIX = "unix:"


def take_all(places: SharedPlaces, caller: str) -> int:
    taken = 0
    while places.take(caller, by_unix=caller == UNIX) is None:
        taken += 1
    return taken


def test_one_caller_has_three_quarters_and_leaves_the_next_one_places() -> None:
    places = SharedPlaces(TOTAL)
    assert take_all(places, UNIX) == TOTAL * 3 // 4
    assert take_all(places, "ipv4:127.0.0.1:1") == (TOTAL // 4 - TOTAL // UNIX_SHARE) * 3 // 4


@pytest.mark.parametrize("connections", [2, 6, 20])
def test_connections_that_take_in_turn_what_they_can_have_the_same_number_each(connections: int) -> None:
    places = SharedPlaces(TOTAL)
    callers = [f"ipv4:127.0.0.1:{number}" for number in range(connections)]
    taken = dict.fromkeys(callers, 0)
    for caller in callers * TOTAL:
        taken[caller] += places.take(caller, by_unix=False) is None
    assert max(taken.values()) - min(taken.values()) <= 1
    assert sum(taken.values()) > TOTAL // 2
    assert places.take("ipv4:127.0.0.1:newcomer", by_unix=False) is None


def test_however_many_connections_there_are_a_unix_socket_has_a_place() -> None:
    places = SharedPlaces(TOTAL)
    taken = sum(places.take(f"ipv6:%5B::1%5D:{number}", by_unix=False) is None for number in range(10 * TOTAL))
    assert taken == TOTAL - TOTAL // UNIX_SHARE
    assert places.take("named", by_unix=False) is not None
    assert places.take("named", by_unix=True) is None


def test_a_refusal_says_what_the_caller_holds_and_may_hold_and_what_is_given_back_can_be_taken() -> None:
    places = SharedPlaces(4)
    assert take_all(places, UNIX) == 3
    shortage = places.take(UNIX, by_unix=True)
    assert shortage is not None
    assert (shortage.held, shortage.bound, shortage.free) == (3, 3, 1)
    places.give_back(UNIX)
    assert places.take(UNIX, by_unix=True) is None


def test_the_only_place_can_be_had() -> None:
    places = SharedPlaces(1)
    assert take_all(places, UNIX) == 1
    places.give_back(UNIX)
    assert take_all(places, "ipv4:127.0.0.1:1") == 1
