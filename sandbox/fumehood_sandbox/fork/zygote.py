"""The zygote: inside a sandbox whose program forks a process for each call, it forks one at each request.

The stage applies every layer of the inner stage, and leaves `Zygote` to the program as the module `fumehood_zygote`;
the program calls its `serve` when it has imported what its calls need. From then on this process has one thread and
does nothing but fork. A request is a number on the control socket, with the child's stdin, stdout and stderr. What is
true of a child is not taken from its word: the fork supervisor looks from outside.

By `_ctypes` alone, like the stages: every page that a library brings is one that each child shares and may copy.
"""

import _ctypes
import _socket  # socket itself imports much; and nothing may be imported, or open, once the zygote is checked
import _thread
import os
import select
import sys

from fumehood_sandbox.fork.handshake import (
    CHILD_READY,
    CHILD_STARTED,
    CLONE_FAILED,
    CONTINUE,
    LONGEST_REQUEST_BYTES,
    REQUEST_PIPES,
)
from fumehood_sandbox.inside.inner import main as run_inner_stage
from fumehood_sandbox.kernel.constants import (
    CAPABILITY_VERSION_3,
    CMSG_SPACE_OF_DESCRIPTORS,
    LAST_DESCRIPTOR,
    LAST_POSSIBLE_CAPABILITY,
    PR_CAPBSET_DROP,
    PR_CAPBSET_READ,
    PR_SET_PDEATHSIG,
    SECCOMP_SET_MODE_FILTER,
    SIGCHLD,
    SIGKILL,
    SIGNAL_SET_BYTES,
    SOCK_FILTER_BYTES,
    STAGE_FAILED_STATUS,
    STRUCT_SIGACTION_BYTES,
    SYS_CAPSET,
    SYS_CLONE,
    SYS_LANDLOCK_CREATE_RULESET,
    SYS_LANDLOCK_RESTRICT_SELF,
    SYS_PRCTL,
    SYS_PRLIMIT64,
    SYS_RT_SIGACTION,
    SYS_SECCOMP,
)
from fumehood_sandbox.kernel.libc import StepError, call, function, pinned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from ctypes import c_long as _Long  # noqa: N812 - what the class below is
    from typing import Any, NoReturn
else:
    from fumehood_sandbox.kernel.libc import _Long

_IGNORE_SIGNAL = (1).to_bytes(8, sys.byteorder) + bytes(STRUCT_SIGACTION_BYTES - 8)
"""struct sigaction of the kernel: SIG_IGN, no flags, no restorer, nothing masked."""


def main(config: "dict[str, Any]") -> None:
    """Apply every layer, make the zygote, and run the module that has it serve."""
    run_inner_stage(config, _make_modules)


def _make_modules(config: "dict[str, Any]") -> "dict[str, Any]":
    return {"fumehood_zygote": Zygote(config["zygote"])}


class _LockHolding(_ctypes.CFuncPtr):
    """A function that is called with the interpreter's lock held, as fork(2) must be: the child has it then."""

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO | _ctypes.FUNCFLAG_PYTHONAPI
    _restype_ = _Long


class Zygote:
    """The one zygote of this process."""

    def __init__(self, config: "dict[str, Any]") -> None:
        """Look up all that a fork needs, and put each call of the child together: see `_run_child`.

        Raises:
            StepError: this C library keeps a thread's number where it can't be found.
        """
        self._control: int = config["control_fd"]
        self._working_directory: str = config["working_directory"]
        machine = os.uname().machine
        prctl, sigaction = SYS_PRCTL[machine], SYS_RT_SIGACTION[machine]
        handle = _ctypes.dlopen(None, 0)  # type: ignore[arg-type] # None is the program itself
        self._syscall = _LockHolding(_ctypes.dlsym(handle, "syscall"))
        self._before, self._in_parent, self._in_child = (
            _LockHolding(_ctypes.dlsym(handle, name))
            for name in ("PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child")
        )
        tid = _address_of_thread_number(handle)
        # The kernel writes the child's number where its C library keeps it: otherwise a thread of the child that
        # happens to get the zygote's number would pass for the owner of every lock that the main thread holds.
        child_tid = (0, 0, tid, 0) if machine == "x86_64" else (0, 0, 0, tid)
        self._clone = _arguments(SYS_CLONE[machine], config["clone_flags"], *child_tid)
        self._pinned: list[object] = []
        self._die_with_parent = _arguments(prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        old = self._pin(bytes(STRUCT_SIGACTION_BYTES))
        self._ignore_sigchld = _arguments(sigaction, SIGCHLD, self._pin(_IGNORE_SIGNAL), old, SIGNAL_SET_BYTES)
        self._restore_sigchld = _arguments(sigaction, SIGCHLD, old, 0, SIGNAL_SET_BYTES)
        read = function("prctl")
        # Each step of Python writes to the pages of every object that it touches, and a child has to copy those: hence
        # calls whose arguments are there already, small numbers where they will do, for those are all in one place, and
        # no names, modules or classes on the way.
        self._prctl = _LockHolding(_ctypes.dlsym(handle, "prctl"))
        known = (read(PR_CAPBSET_READ, each, 0, 0, 0) >= 0 for each in range(LAST_POSSIBLE_CAPABILITY + 1))
        self._capabilities = sum(known)
        self._capset = _arguments(SYS_CAPSET[machine], self._pin(_header()), self._pin(bytes(24)))
        self._limits = [
            _arguments(SYS_PRLIMIT64[machine], 0, number, self._pin(value.to_bytes(8, sys.byteorder) * 2), 0)
            for number, value in config["child_rlimits"]
        ]
        landlock: bytes = config["child_landlock"]
        self._make_ruleset = _arguments(SYS_LANDLOCK_CREATE_RULESET, self._pin(landlock), len(landlock), 0)
        child_filter: bytes = config["child_filter"]
        # struct sock_fprog: the count of instructions in 16 bits, padded to a pointer's size, and their address.
        count = (len(child_filter) // SOCK_FILTER_BYTES).to_bytes(2, sys.byteorder)
        program = count + bytes(6) + self._pin(child_filter).to_bytes(8, sys.byteorder)
        self._filter = _arguments(SYS_SECCOMP[machine], SECCOMP_SET_MODE_FILTER, 0, self._pin(program))

    def _pin(self, content: bytes) -> int:
        """The address of a copy that stays."""
        address, held = pinned(content)
        self._pinned.append(held)
        return address

    def serve(self, stop_fd: int, run: "Callable[[], None]") -> None:
        """Fork at each request, until there is something to read from `stop_fd` or the supervisor has closed its end.

        Each child calls `run` with its own pipes as 0, 1 and 2, and ends when that comes back.
        """
        control = _socket.socket(fileno=self._control)
        # All that the loop and the child use has a name of its own: Python rewrites a loop as it runs, and each child
        # would find the way to `self._clone` anew, in pages that it has to copy for that.
        receive, report_failure, syscall, clone = control.recvmsg, control.send, self._syscall, self._clone
        before, in_parent, child = self._before, self._in_parent, self._run_child
        errno, close, closerange = _ctypes.get_errno, os.close, os.closerange
        # Where a name is not found is kept as well, in a table of Python's that each child would write to.
        for name in (*child.__code__.co_names, *self._drop_privileges.__code__.co_names):
            getattr(self, name, getattr(os, name, None))
        syscall(*self._ignore_sigchld)  # the kernel reaps
        main_thread = _skip_threading_hook()
        function("malloc_trim")(0)  # each page is one more to be copied into every child's tables
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(stop_fd, select.POLLIN)
        poll = poller.poll
        while True:
            for fd, _ in poll():
                if fd == stop_fd:
                    return
            request, ancillary, _, _ = receive(LONGEST_REQUEST_BYTES, CMSG_SPACE_OF_DESCRIPTORS)
            if not request:
                return
            fds = _descriptors(ancillary)
            before()
            pid = syscall(*clone)
            if pid == 0:
                child(control, request, fds, run, main_thread)
            problem = errno()
            in_parent()
            if fds and fds[-1] - fds[0] < len(fds):  # one behind the other, as the kernel gives them out
                closerange(fds[0], fds[-1] + 1)
            else:
                for fd in fds:
                    close(fd)
            if pid < 0:
                report_failure(CLONE_FAILED + request + b" " + str(problem).encode())

    def _run_child(
        self,
        control: "_socket.socket",
        request: bytes,
        fds: "list[int]",
        run: "Callable[[], None]",
        main_thread: "Any",  # noqa: ANN401 - threading's, if there is one
    ) -> "NoReturn":
        try:
            self._in_child()
            if main_thread is not None:
                main_thread._native_id = os.getpid()  # noqa: SLF001 - its own way asks for more
            syscall = self._syscall
            syscall(*self._die_with_parent)
            syscall(*self._restore_sigchld)
            os.setsid()
            for number in (0, 1, 2):
                os.dup2(fds[number], number)
            control.send(CHILD_STARTED + request)
            if os.read(0, 1) != CONTINUE:
                os._exit(STAGE_FAILED_STATUS)
            for tasks_fd in fds[REQUEST_PIPES:]:
                os.write(tasks_fd, b"0")  # joins the cgroup that is this call's own; the launcher checks that
            self._drop_privileges()
            os.closerange(REQUEST_PIPES, LAST_DESCRIPTOR)
            os.chdir(self._working_directory)
            os.write(1, CHILD_READY)
            if os.read(0, 1) != CONTINUE:
                os._exit(STAGE_FAILED_STATUS)
            run()
            status = 0
        except BaseException as error:  # noqa: BLE001 - nothing may come back into the zygote's own code
            said = " ".join(error.fields) if isinstance(error, StepError) else f"{type(error).__name__}: {error}"
            os.write(2, f"fumehood-sandbox: {said}\n".encode("utf-8", "replace"))
            status = STAGE_FAILED_STATUS
        os._exit(status)

    def _drop_privileges(self) -> None:
        """Drop the new user namespace's capabilities; set the call's own limits, Landlock domain and filter."""
        syscall, prctl = self._syscall, self._prctl
        for capability in range(self._capabilities):
            prctl(PR_CAPBSET_DROP, capability)
        if syscall(*self._capset) != 0:
            raise StepError("capabilities", os.strerror(_ctypes.get_errno()))
        for limit in self._limits:
            if syscall(*limit) != 0:
                raise StepError("rlimits", os.strerror(_ctypes.get_errno()))
        ruleset = syscall(*self._make_ruleset)
        if ruleset < 0 or syscall(SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
            raise StepError("landlock", os.strerror(_ctypes.get_errno()))
        if syscall(*self._filter) != 0:
            raise StepError("seccomp", os.strerror(_ctypes.get_errno()))


def _arguments(*values: int) -> "tuple[Any, ...]":
    """What syscall(2) is called with: it reads whole registers."""
    return tuple(_Long(each) for each in values)


def _header() -> bytes:
    return CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4)  # process 0: whoever calls


def _skip_threading_hook() -> "Any":  # noqa: ANN401 - a type of a module that may not be there
    """Keep `threading` from making all anew in a child what a process of one thread can't have left in disorder.

    It takes half a child's page faults: it looks at each thread that ever was, by weak references and their classes.
    The process that forks has one thread, the same one before and after; the supervisor has checked that. What a child
    forks in its turn is treated as ever. Returns the thread whose number is another one in each child, if it is known.
    """
    threading = sys.modules.get("threading")
    hook: Any = getattr(threading, "_after_fork", None)
    main = getattr(threading, "_main_thread", None)
    if (
        getattr(threading, "_active", None) != {_thread.get_ident(): main}
        or getattr(threading, "_limbo", None)
        or not hasattr(main, "_native_id")
        or getattr(hook, "__globals__", None) is not vars(threading)
        or hook.__code__.co_freevars
        or hook.__defaults__
    ):
        return None
    as_ever = type(hook)(hook.__code__, hook.__globals__)
    hook.__code__ = _after_fork_of_zygote.__code__
    hook.__defaults__ = ([main], as_ever)
    return main


def _after_fork_of_zygote(due: "list[Any]", as_ever: "Callable[[], None]") -> None:
    # Runs as threading's own. `due` is empty in what a child forks.
    if due:
        del due[:]
    else:
        as_ever()


def _descriptors(ancillary: "list[tuple[int, int, bytes]]") -> "list[int]":
    fds: list[int] = []
    for _, _, part in ancillary:
        fds += memoryview(part).cast("i").tolist()
    return fds


def _address_of_thread_number(handle: int) -> int:
    """Where the C library keeps the main thread's number: glibc says it to debuggers (nptl_db)."""
    try:
        described = _ctypes.dlsym(handle, "_thread_db_pthread_tid")
    except OSError as error:
        raise StepError("zygote", "this C library does not say where it keeps a thread's number") from error
    # Three numbers of 32 bits: size in bits, count, offset.
    offset = _Long.from_address(described + 8).value & 0xFFFFFFFF
    address = call("zygote", "pthread_self", what="pthread_self") + offset
    if _Long.from_address(address).value & 0xFFFFFFFF != os.getpid():
        raise StepError("zygote", "this C library keeps a thread's number elsewhere than it says")
    return address
