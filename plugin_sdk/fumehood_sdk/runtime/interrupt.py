"""Raises `Cancelled` in the thread of a synchronous call that was asked to end and did not."""

from __future__ import annotations

import threading

from fumehood_sdk.call import Call
from fumehood_sdk.errors import Cancelled

LOCK_TIMEOUT_S = 0.05
"""The writer's lock is held for longer only while the sidecar does not read; then the end can wait as well."""
RETRACT_TIMEOUT_S = 5.0
"""Between taking the right to interrupt and doing so lie two lines; more is a machine that stands still."""


def interrupt_call(call: Call, write_lock: threading.Lock) -> bool:
    """Interrupt a call, unless it has ended. False: try again later.

    `write_lock` is the one that the call's words are written under: whoever holds it is in no write then.

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


def retract_interruption(call: Call) -> None:
    """In the call's own thread, after `interrupt_call`: have the exception raised no later than here."""
    while True:
        try:
            call.interruption.wait(RETRACT_TIMEOUT_S)
            _raise_in(threading.get_ident(), None)
        except Cancelled:
            # It arrived here rather than in the tool. There is only one.
            return
        else:
            return


def _raise_in(thread_id: int, kind: type[BaseException] | None) -> None:
    import ctypes  # noqa: PLC0415 - most workers never interrupt a call

    # Documented in the C API: takes a thread's id and a borrowed exception type, or NULL to take back one that has
    # not been raised yet. ctypes.pythonapi keeps the GIL held.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), None if kind is None else ctypes.py_object(kind)
    )
