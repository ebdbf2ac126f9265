"""Raw calls of libc for the stages, by `_ctypes` alone: importing `ctypes` would cost each start 3 ms."""

import _ctypes
import os

from fumehood_sandbox.kernel.constants import (
    LAST_SIGNAL,
    SIGNAL_SET_BYTES,
    STRUCT_SIGACTION_BYTES,
    SYS_RT_SIGACTION,
)

TYPE_CHECKING = False  # type checkers know the name; importing typing would cost each start 4 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from ctypes import c_char as _Byte  # noqa: N812 - what the classes below are
    from ctypes import c_int as _Int  # noqa: N812
    from ctypes import c_long as _Long  # noqa: N812
    from typing import Any
else:

    class _Int(_ctypes._SimpleCData):  # noqa: SLF001 - what ctypes.c_int is made from
        _type_ = "i"

    class _Long(_ctypes._SimpleCData):  # noqa: SLF001 - what ctypes.c_long is made from
        _type_ = "l"

    class _Byte(_ctypes._SimpleCData):  # noqa: SLF001 - what ctypes.c_char is made from
        _type_ = "c"


_DEFAULT_ACTION = bytes(STRUCT_SIGACTION_BYTES)  # SIG_DFL, no flags, no restorer, nothing masked
_ANSWER_LONG = ("syscall", "pthread_self")
"""The functions used here that answer with a long. A -1 of all others has 32 bits: read as a long it is no failure."""


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


class _LongFunction(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long


class StepError(Exception):
    """One step of a stage failed. `fields` are what the launcher is told: step, problem, path, errno."""

    def __init__(self, step: str, problem: str, path: str = "", errno: int = 0) -> None:
        super().__init__(step)
        self.fields = (step, problem, path, str(errno))


def function(name: str) -> "Callable[..., int]":
    """A function of libc that takes integers as longs and bytes as pointers, and answers with what it is declared with.

    Longs, since variadic functions such as syscall(2) and prctl(2) read whole registers.
    """
    kind = _LongFunction if name in _ANSWER_LONG else _Function
    raw = kind(_ctypes.dlsym(_ctypes.dlopen(None, 0), name))  # type: ignore[arg-type] # None is the program itself

    def call(*arguments: int | bytes) -> int:
        return int(raw(*(_Long(each) if isinstance(each, int) else each for each in arguments)))

    return call


def call(step: str, name: str, *arguments: int | bytes, what: str, path: str = "") -> int:
    """Call a function of libc and give its answer.

    Raises:
        StepError: it answered with less than 0.
    """
    return checked(step, function(name)(*arguments), what=what, path=path)


def checked(step: str, answer: int, *, what: str, path: str = "") -> int:
    """The answer of a function of libc, which was called just now.

    Raises:
        StepError: it is less than 0.
    """
    if answer < 0:
        errno = _ctypes.get_errno()
        raise StepError(step, f"{what}: {os.strerror(errno)}", path, errno)
    return answer


def pinned(content: bytes) -> "tuple[int, object]":
    """The address of a copy of these bytes, and what keeps the copy where it is: hold on to it."""
    kind: Any = type("Bytes", (_ctypes.Array,), {"_type_": _Byte, "_length_": len(content)})
    copy = kind.from_buffer_copy(content)
    return _ctypes.addressof(copy), copy


def restore_signals() -> None:
    """Leave no signal ignored, for execve(2) would hand that on: a program expects to die of a broken pipe.

    Python ignores two. Whoever started the sidecar may have ignored others: nohup SIGHUP, a shell's `&` SIGINT, and
    glibc's posix_spawn, by which make starts its recipes, 32 and 33. Those are glibc's own, so the kernel is asked.
    """
    syscall, number = function("syscall"), SYS_RT_SIGACTION[os.uname().machine]
    for signal in range(1, LAST_SIGNAL + 1):  # the kernel refuses SIGKILL and SIGSTOP, which are as they are
        syscall(number, signal, _DEFAULT_ACTION, 0, SIGNAL_SET_BYTES)
