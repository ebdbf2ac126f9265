"""The clock that approvals expire by: setting the machine's clock back gives nobody more time."""

from __future__ import annotations

from fumehood_server.model.steady_clock import SteadyClock

SECOND = 1_000_000_000


def test_a_clock_that_is_set_back_does_not_hold_time_up() -> None:
    wall, elapsed = [1_000 * SECOND], [5 * SECOND]
    clock = SteadyClock(lambda: wall[0], lambda: elapsed[0])
    seen = [clock.now_us()]
    for wall_s, elapsed_s in ((1_010, 15), (10, 25), (20, 35), (2_000, 36), (21, 40)):
        wall[0], elapsed[0] = wall_s * SECOND, elapsed_s * SECOND
        seen.append(clock.now_us())
    assert [each / 1_000_000 for each in seen] == [1_000, 1_010, 1_020, 1_030, 2_000, 2_004]
