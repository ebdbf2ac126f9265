"""Raw calls of libc for the stages, by `_ctypes` alone: importing `ctypes` would cost each start 3 ms."""

import _ctypes
import os

TYPE_CHECKING = False  # type checkers know the name; importing typing would cost each start 4 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from ctypes import c_long as _Long  # noqa: N812 - what the class below is
else:

    class _Long(_ctypes._SimpleCData):  # noqa: SLF001 - what ctypes.c_long is made from
        _type_ = "l"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long


class StepError(Exception):
    """One step of a stage failed. `fields` are what the launcher is told: step, problem, path, errno."""

    def __init__(self, step: str, problem: str, path: str = "", errno: int = 0) -> None:
        super().__init__(step)
        self.fields = (step, problem, path, str(errno))


def function(name: str) -> "Callable[..., int]":
    """A function of libc that takes integers as longs and bytes as pointers, and answers with a long.

    Longs, since variadic functions such as syscall(2) read whole registers.
    """
    raw = _Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), name))  # type: ignore[arg-type] # None is the program itself

    def call(*arguments: int | bytes) -> int:
        return int(raw(*(_Long(each) if isinstance(each, int) else each for each in arguments)))

    return call


def call(step: str, name: str, *arguments: int | bytes, what: str, path: str = "") -> int:
    """Call a function of libc and give its answer.

    Raises:
        StepError: it answered with less than 0.
    """
    answer = function(name)(*arguments)
    if answer < 0:
        errno = _ctypes.get_errno()
        raise StepError(step, f"{what}: {os.strerror(errno)}", path, errno)
    return answer


def restore_signals() -> None:
    """Undo what Python set for itself and execve(2) would hand on: a program expects to die of a broken pipe."""
    import _signal  # type: ignore[import-not-found] # noqa: PLC0415 - what signal, which imports enum, is made of

    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)


def say(status_fd: int, *fields: str) -> None:
    """Write one line to the launcher."""
    line = "\t".join(field.replace("\t", " ").replace("\n", " ") for field in fields) + "\n"
    os.write(status_fd, line.encode("utf-8", "backslashreplace"))
