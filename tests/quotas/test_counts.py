"""What the journal counts: never more than the limit in any window, in both databases, whoever writes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from fumehood_server.config.database import Database
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.entry import Entry
from fumehood_server.journal.place import DatabasePlace, FilePlace, Place
from fumehood_server.journal.recovery import recover
from fumehood_server.journal.store import Store
from fumehood_server.model.events import ExecuteEnd, ExecuteStart
from fumehood_server.model.quotas import Charge, Counted
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.bench import STARTED_US, about, end, start
from tests.postgresql import PostgresServer

SECOND = 1_000_000
HOUR = 3_600 * SECOND
ids = itertools.count()


def charge(limit: object = 3, amount: object = 1, counts: Counted = Counted.CALLS, counter: str = "c") -> Charge:
    return Charge(
        quota="q",
        counts=counts,
        key=(("caller", "ada"),),
        counter=counter,
        amount=Decimal(str(amount)),
        limit=Decimal(str(limit)),
        window_us=0 if counts is Counted.IN_FLIGHT else HOUR,
    )


def entry(event: ExecuteStart | ExecuteEnd, *charges: Charge, at_us: int, call_id: str = "") -> Entry:
    of = replace(about(call_id or f"call-{next(ids)}"), charges=charges)
    return encode(event, of, time_us=STARTED_US + at_us, sidecar="a", number=1, payloads=())


def begin(*charges: Charge, at_us: int = 0, call_id: str = "") -> Entry:
    return entry(start(), *charges, at_us=at_us, call_id=call_id)


def began(store: Store, *some: Entry) -> list[bool]:
    store.write(some)
    return [not each.refused for each in some]


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return FilePlace(tmp_path / "journal.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return DatabasePlace(Database(server.new_database()))


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    with contextlib.closing(place.open_store("a")) as store:
        yield store


def test_a_window_refills_by_what_is_too_old_and_not_before(store: Store) -> None:
    assert began(store, *(begin(charge(), at_us=at) for at in (0, HOUR // 2, HOUR // 2))) == [True] * 3
    for at in (HOUR // 2, HOUR - 1):
        late = begin(charge(), at_us=at)
        assert began(store, late) == [False]
        assert late.exceeded is not None
        assert (late.exceeded.used, late.exceeded.free_us) == (3, STARTED_US + HOUR)
    assert began(store, *(begin(charge(), at_us=HOUR) for _ in range(2))) == [True, False]
    assert began(store, *(begin(charge(), at_us=HOUR * 3 // 2) for _ in range(3))) == [True, True, False]


def test_a_clock_that_is_set_back_refills_nothing(store: Store) -> None:
    assert began(store, *(begin(charge(), at_us=2 * HOUR) for _ in range(2))) == [True] * 2
    assert began(store, *(begin(charge(), at_us=0) for _ in range(2))) == [True, False]
    # What was counted meanwhile is as new as what was counted before.
    assert began(store, *(begin(charge(), at_us=3 * HOUR - 1) for _ in range(2))) == [False] * 2
    assert began(store, *(begin(charge(), at_us=3 * HOUR) for _ in range(4))) == [True] * 3 + [False]


def test_a_sum_is_exact_and_tells_what_is_left_and_when_it_is_enough(store: Store) -> None:
    def paid(amount: str, at_us: int = 0) -> Entry:
        return begin(charge("0.6", amount, Counted.SUM), at_us=at_us)

    # As binary numbers, these are more than 0.6.
    assert began(store, paid("0.1"), paid("0.2", HOUR // 2), paid("0.3", HOUR // 2)) == [True] * 3
    more = paid("0.0000000000000000000000001", HOUR // 2), paid("0.2", HOUR // 2), paid("0.7", HOUR // 2)
    assert began(store, *more) == [False] * 3
    found = [each.exceeded.free_us for each in more if each.exceeded is not None]
    assert found == [STARTED_US + HOUR, STARTED_US + HOUR * 3 // 2, None]
    assert began(store, paid("0", HOUR // 2)) == [True]


def test_results_are_counted_though_they_pass_the_limit_and_the_next_call_waits(store: Store) -> None:
    size = charge(100, 10, Counted.BYTES)
    assert began(store, begin(size, call_id="large")) == [True]
    store.write([entry(end(), replace(size, amount=Decimal(500)), at_us=1, call_id="large")])
    nothing = begin(replace(size, amount=Decimal(0)), at_us=2)
    assert began(store, nothing) == [False]
    assert nothing.exceeded is not None
    assert (nothing.exceeded.used, nothing.exceeded.free_us) == (510, STARTED_US + HOUR + 1)
    assert began(store, begin(size, at_us=HOUR + 1)) == [True]


def test_a_place_is_free_again_once_its_call_has_an_outcome_whoever_writes_it(place: Place) -> None:
    held = charge(2, counts=Counted.IN_FLIGHT)
    with contextlib.closing(place.open_store("dead")) as store:
        assert began(store, *(begin(held, call_id=each) for each in "abc")) == [True, True, False]
        # In one batch: the end of one, and two that come after it.
        assert began(store, entry(end(), held, at_us=1, call_id="a"), *(begin(held) for _ in range(2))) == [
            True,
            True,
            False,
        ]
        assert began(store, begin(held)) == [False]
    with contextlib.closing(place.open_store("next")) as store:
        assert began(store, begin(held)) == [False]
        recover(store, place.open_reader, sidecar="next")
        assert began(store, *(begin(held) for _ in range(3))) == [True, True, False]


def test_one_refusal_takes_nothing_of_the_other_quotas(store: Store) -> None:
    ample, scarce = charge(2, counter="ample"), charge(1, counter="scarce")
    assert began(store, begin(ample, scarce), begin(ample, scarce), begin(ample, scarce)) == [True, False, False]
    assert began(store, begin(ample), begin(ample)) == [True, False]


def test_what_counts_no_more_is_removed(store: Store) -> None:
    assert all(began(store, *(begin(charge(counter=f"c{number}")) for number in range(200))))
    assert began(store, *(begin(charge(counter=f"d{number}"), at_us=2 * HOUR) for number in range(200))) == [True] * 200
    rows: Callable[[str], Sequence[Sequence[int]]] = store.rows  # type: ignore[attr-defined] # of both
    assert next(iter(rows("SELECT count(*) FROM quota_windows")))[0] == 200


def test_two_sidecars_in_turn_count_together(postgres_server: PostgresServer) -> None:
    place = DatabasePlace(Database(postgres_server.new_database()))
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(contextlib.closing(place.open_store(each))) for each in ("one", "other")]
        held = charge(7, counts=Counted.IN_FLIGHT, counter="held")
        found = [began(both[turn % 2], begin(charge(50), held)) for turn in range(10)]
        assert found == [[True]] * 7 + [[False]] * 3
        found = [began(both[turn % 2], begin(charge(50))) for turn in range(60)]
        assert found == [[True]] * 43 + [[False]] * 17


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-HOUR // 8, HOUR // 4), st.integers(0, 60)), max_size=200),
)
def test_no_window_ever_holds_more_than_the_limit(steps: list[tuple[int, int]]) -> None:
    from fumehood_server.model.quota_counts import Window  # noqa: PLC0415

    window, kept, clock, high = Window.of(charge(100)), list[tuple[int, int]](), STARTED_US, STARTED_US
    for step, amount in steps:
        clock += step
        high = max(high, clock)
        asked = charge(100, amount)
        if window.exceeded(asked, high) is None:
            window.add(asked, high)
            kept.append((high, amount))
        else:
            # Nothing is refused that would fit into a window a sixtieth longer.
            assert sum(each for at, each in kept if at > high - HOUR - HOUR // 60) + amount > 100
        window = Window.from_json(window.to_json())
        assert len(window.entries) <= 62
        assert sum(each for at, each in kept if at > high - HOUR) <= 100
