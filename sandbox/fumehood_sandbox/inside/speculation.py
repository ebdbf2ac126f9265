"""Speculation control (prctl(2), Documentation/userspace-api/spec_ctrl.rst): off for good where the kernel lets it."""

from fumehood_sandbox.inside.report import report
from fumehood_sandbox.kernel.constants import (
    PR_GET_SPECULATION_CONTROL,
    PR_SET_SPECULATION_CONTROL,
    PR_SPEC_DISABLE,
    PR_SPEC_FORCE_DISABLE,
    PR_SPEC_INDIRECT_BRANCH,
    PR_SPEC_PRCTL,
    PR_SPEC_STORE_BYPASS,
)
from fumehood_sandbox.kernel.libc import checked, function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_MISFEATURES = (("store bypass", PR_SPEC_STORE_BYPASS), ("indirect branch", PR_SPEC_INDIRECT_BRANCH))


def limit_speculation(status: int) -> None:
    """Turn off what one thread's speculation can be led by, for this process and its descendants, for good.

    A processor or a kernel without such a control is no reason not to run: what holds there is reported.

    Raises:
        StepError: the kernel says that it can be turned off, and refuses.
    """
    prctl = function("prctl")
    said = ", ".join(f"{name} {turn_off(number, prctl)}" for name, number in _MISFEATURES)
    report(status, "layer", "speculation", said)


def turn_off(number: int, prctl: "Callable[..., int]") -> str:
    """Turn one of them off by prctl(2). Returns what holds then.

    Raises:
        StepError: the kernel says that it can be turned off, and refuses.
    """
    state = prctl(PR_GET_SPECULATION_CONTROL, number, 0, 0, 0)
    if state < 0:
        return "not known to this kernel"
    if state & PR_SPEC_PRCTL and not state & PR_SPEC_FORCE_DISABLE:
        answer = prctl(PR_SET_SPECULATION_CONTROL, number, PR_SPEC_FORCE_DISABLE, 0, 0)
        checked("speculation", answer, what=f"turn off {number}")
        state = prctl(PR_GET_SPECULATION_CONTROL, number, 0, 0, 0)
    if state == 0:
        return "harmless on this processor"
    if state & PR_SPEC_FORCE_DISABLE:
        return "off for good"
    return "off by the kernel" if state & PR_SPEC_DISABLE else "on, since this kernel has no control of it"


def speculation_control() -> tuple[tuple[str, bool], ...]:
    """Of each kind by its name, whether it is off or harmless in sandboxed processes of this machine."""
    read = function("prctl")
    states = ((name, read(PR_GET_SPECULATION_CONTROL, number, 0, 0, 0)) for name, number in _MISFEATURES)
    safe = PR_SPEC_PRCTL | PR_SPEC_DISABLE | PR_SPEC_FORCE_DISABLE
    return tuple((name, state == 0 or (state > 0 and bool(state & safe))) for name, state in states)
