"""Raises `Cancelled` in the thread of a synchronous call that does not end (PyThreadState_SetAsyncExc)."""

from __future__ import annotations

import threading

from fumehood_sdk.call import Call
from fumehood_sdk.errors import Cancelled

LOCK_TIMEOUT_S = 0.05
"""The writer's lock is held for longer only while the sidecar does not read; then the end can wait as well."""
_STEPS = 1000
"""Of Python code, at the first of which an exception arrives that was raised in the own thread."""
RETRACT_TIMEOUT_S = 5.0
"""Bound of waiting for the interrupting thread, which has two lines left to run."""


def interrupt_call(call: Call, write_lock: threading.Lock) -> bool:
    """Interrupt a call, unless it has ended. False: try again later.

    `write_lock` guards the writing of frames: while this thread holds it, the call's thread is not within a write.

    The exception arrives at the thread's next step of Python code, so code that waits inside a C function goes on
    until that returns.
    """
    if not write_lock.acquire(timeout=LOCK_TIMEOUT_S):
        return False
    try:
        done = threading.Event()
        call.interruption = done
        try:
            call.end_claim.pop()
        except IndexError:
            return True
        try:
            _raise_in(call.thread_id, Cancelled)
        finally:
            done.set()
        return True
    finally:
        write_lock.release()


class _RetractedError(BaseException):
    """Takes the place of an exception that was not raised yet."""


def retract_interruption(call: Call) -> None:
    """In the call's own thread, after `interrupt_call`: catch the exception or take it back; none is raised later."""
    try:
        call.interruption.wait(RETRACT_TIMEOUT_S)
        # Not NULL, which the C API has for this: where nothing is left to take back the interpreter goes on looking
        # for an exception at each call and jump, for ever, and Python 3.11 hangs there under `sys.setprofile`.
        _raise_in(threading.get_ident(), _RetractedError)
        for _ in range(_STEPS):
            pass
    except (Cancelled, _RetractedError):
        # Raised here and not in the tool. No second one follows.
        return


def _raise_in(thread_id: int, kind: type[BaseException]) -> None:
    import ctypes  # noqa: PLC0415 - most workers never interrupt a call

    # Documented in the C API: takes a thread's id and a borrowed exception type, in the place of one that has not been
    # raised yet. ctypes.pythonapi keeps the GIL held.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(kind))
