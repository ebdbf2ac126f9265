"""What libc refuses is an error, whatever width its answer has."""

import errno

import pytest
from fumehood_sandbox.inside.layers import load_filter
from fumehood_sandbox.kernel.libc import StepError, call, function

PR_CAPBSET_READ = 23
NO_SUCH_CAPABILITY = 63


def test_a_function_that_answers_with_an_int_fails_when_it_says_minus_one() -> None:
    with pytest.raises(StepError) as refused:
        call("capabilities", "prctl", PR_CAPBSET_READ, NO_SUCH_CAPABILITY, 0, 0, 0, what="read")

    assert refused.value.fields[0] == "capabilities"
    assert refused.value.fields[3] == str(errno.EINVAL)
    assert call("capabilities", "prctl", PR_CAPBSET_READ, 0, 0, 0, 0, what="read") in (0, 1)


def test_a_filter_that_the_kernel_refuses_is_not_taken_for_one_in_force() -> None:
    with pytest.raises(StepError) as refused:
        load_filter(bytes(8), what="load")  # an instruction that ends nothing

    assert refused.value.fields[:2] == ("seccomp", "load: Invalid argument")


def test_a_system_call_keeps_all_of_its_answer() -> None:
    address = function("pthread_self")()

    assert address > 0xFFFFFFFF
