"""Runs the program on stdin, as `python file` would. Started by `run_python` in a fresh interpreter for each call.

stdout and stderr are the program's, and so is the exit status. What the program starts ends with the call, since
each call has a process namespace of its own.
"""

import ctypes
import linecache
import os
import sys
import traceback

NAME = "<code>"

_PR_SET_NO_NEW_PRIVS = 38
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_RESTRICT_SELF = 446
_SCOPE_ABSTRACT_UNIX_SOCKET_AND_SIGNAL = 3


def main() -> int:
    """Run the program; return the exit status, or let its own SystemExit pass."""
    code = sys.stdin.buffer.read()
    _become_the_program(ctypes.CDLL(None, use_errno=True))
    return _run(code)


def _become_the_program(libc: ctypes.CDLL) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    # A Landlock domain of its own: its members can't signal processes outside it, so the program can't end the one that
    # waits for it. Kernels before 6.12 know no scopes: there it can, and the call fails.
    attributes = (ctypes.c_uint64 * 3)(0, 0, _SCOPE_ABSTRACT_UNIX_SOCKET_AND_SIGNAL)
    ruleset = libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, attributes, ctypes.sizeof(attributes), 0)
    if ruleset >= 0:
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # landlock_restrict_self(2) asks for it
        if libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
        os.close(ruleset)


def _run(code: bytes) -> int:
    """Execute the program as `python file` would. Its traceback shows its own lines and none of these."""
    try:
        source = code.decode()
        linecache.cache[NAME] = (len(source), None, source.splitlines(keepends=True), NAME)
        exec(compile(source, NAME, "exec", dont_inherit=True), {"__name__": "__main__", "__builtins__": __builtins__})  # noqa: S102 - its purpose
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the program raises is told on its stderr
        own = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, own)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
