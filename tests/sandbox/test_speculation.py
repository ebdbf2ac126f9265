"""What is asked of a kernel that says what it can do about speculation, whatever this machine's own kernel can."""

from __future__ import annotations

import ctypes
import errno

import pytest
from fumehood_sandbox.inside.speculation import turn_off
from fumehood_sandbox.kernel.libc import StepError

GET, SET = 52, 53
STORE_BYPASS = 0
PRCTL, ENABLE, DISABLE, FORCE_DISABLE = 1, 2, 4, 8


class Kernel:
    """prctl(2) of a kernel with this state (Documentation/userspace-api/spec_ctrl.rst)."""

    def __init__(self, state: int, *, refuses: bool = False) -> None:
        self.state = state
        self.refuses = refuses
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, *arguments: int) -> int:
        self.asked.append(arguments)
        if arguments[0] == GET:
            return self.state
        if self.refuses:
            ctypes.set_errno(errno.ENXIO)
            return -1
        self.state = PRCTL | arguments[2]
        return 0


@pytest.mark.parametrize("before", [PRCTL | ENABLE, PRCTL | DISABLE])
def test_what_a_process_may_turn_off_is_turned_off_for_good(before: int) -> None:
    kernel = Kernel(before)
    assert turn_off(STORE_BYPASS, kernel) == "off for good"
    read = (GET, STORE_BYPASS, 0, 0, 0)
    assert kernel.asked == [read, (SET, STORE_BYPASS, FORCE_DISABLE, 0, 0), read]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (-1, "not known to this kernel"),
        (0, "harmless on this processor"),
        (ENABLE, "on, since this kernel has no control of it"),
        (DISABLE, "off by the kernel"),
        (PRCTL | FORCE_DISABLE, "off for good"),
    ],
)
def test_what_a_process_can_not_turn_off_is_said_and_not_asked_for(state: int, said: str) -> None:
    kernel = Kernel(state)
    assert turn_off(STORE_BYPASS, kernel) == said
    assert kernel.asked == [(GET, STORE_BYPASS, 0, 0, 0)]


def test_a_kernel_that_refuses_what_it_offers_starts_nothing() -> None:
    with pytest.raises(StepError) as failed:
        turn_off(STORE_BYPASS, Kernel(PRCTL | ENABLE, refuses=True))
    step, problem, _, number = failed.value.fields
    assert (step, number) == ("speculation", str(errno.ENXIO))
    assert problem.startswith("turn off 0: ")
