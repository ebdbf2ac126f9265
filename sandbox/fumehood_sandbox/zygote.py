"""Inside a sandbox whose program forks a process for each call: waits for orders, and makes the children.

The inner stage leaves this module to the program, which calls `serve` when it has imported what its calls need. From
then on this process has one thread and does nothing but fork. Each order is a message on the control socket with the
child's stdin, stdout and stderr. What is true of a child is not taken from its word: `attendant` looks from outside.

By `_ctypes` alone, like the stages: every page that a library brings is one that each child shares and may copy.
"""

import _ctypes
import os
import select
import sys

from fumehood_sandbox.libc import StepError, call, function, pinned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from ctypes import c_long as _Long  # noqa: N812 - what the class below is
    from typing import Any, NoReturn
else:
    from fumehood_sandbox.libc import _Long

BORN, GO, SET, REFUSED = b"b", b"g", b"s", b"x"
"""What passes between a child and its attendant: it is there; it may go on; it has given up what it had."""

_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
# The same on every architecture, see landlock(7).
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_RESTRICT_SELF = 446
_SECCOMP_SET_MODE_FILTER = 1
_INSTRUCTION_BYTES = 8
_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_POSSIBLE_CAPABILITY = 63
_SIGKILL = 9
_FAILED_STATUS = 125
_LONGEST_ORDER_BYTES = 16
_DESCRIPTORS = 3
_SCM_RIGHTS_SPACE = 128
"""CMSG_SPACE of more descriptors than an order has: three pipes, and the doors of a cgroup."""


class _Held(_ctypes.CFuncPtr):
    """A function that is called with the interpreter's lock held, as fork(2) must be: the child has it then."""

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO | _ctypes.FUNCFLAG_PYTHONAPI
    _restype_ = _Long


class Zygote:
    """The one zygote of this process. Made by the inner stage."""

    def __init__(self, config: "dict[str, Any]") -> None:
        """Look up all that a fork needs.

        Raises:
            StepError: this C library keeps a thread's number where it can't be found.
        """
        self._config = config
        self._control: int = config["control_fd"]
        machine = os.uname().machine
        self._clone_number = _SYS_CLONE[machine]
        self._seccomp_number = _SYS_SECCOMP[machine]
        handle = _ctypes.dlopen(None, 0)  # type: ignore[arg-type] # None is the program itself
        self._syscall = _Held(_ctypes.dlsym(handle, "syscall"))
        self._before, self._in_parent, self._in_child = (
            _Held(_ctypes.dlsym(handle, name))
            for name in ("PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child")
        )
        tid = _address_of_thread_number(handle)
        # The kernel writes the child's number where its C library keeps it: otherwise a thread of the child that
        # happens to get the zygote's number would pass for the owner of every lock that the main thread holds.
        places = (0, 0, tid, 0) if machine == "x86_64" else (0, 0, 0, tid)
        self._clone_arguments = tuple(_Long(each) for each in (self._clone_number, config["clone_flags"], *places))
        address, self._filter = pinned(config["child_filter"])
        # struct sock_fprog: the count of instructions in 16 bits, padded to a pointer's size, and their address.
        count = (len(config["child_filter"]) // _INSTRUCTION_BYTES).to_bytes(2, sys.byteorder)
        self._program = count + bytes(6) + address.to_bytes(8, sys.byteorder)
        self._prctl = function("prctl")
        self._raw = function("syscall")
        known = (self._prctl(_PR_CAPBSET_READ, each, 0, 0, 0) >= 0 for each in range(_LAST_POSSIBLE_CAPABILITY + 1))
        self._capabilities = sum(known)
        self._capset = function("capset")
        self._no_capabilities = _CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4), bytes(24)

    def serve(self, stop_fd: int, run: "Callable[[], None]") -> None:
        """Fork at each order, until there is something to read from `stop_fd` or nobody gives orders any more.

        Each child calls `run` with its own pipes as 0, 1 and 2, and ends when that comes back.
        """
        import _socket  # noqa: PLC0415 - socket itself imports much
        import resource  # noqa: PLC0415 - the child needs it and must not import it
        import signal  # noqa: PLC0415

        child_signal = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
        control = _socket.socket(fileno=self._control)
        function("malloc_trim")(0)  # each page is one more to be copied into every child's tables
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(stop_fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll()}
            if stop_fd in ready:
                return
            message, ancillary, _, _ = control.recvmsg(_LONGEST_ORDER_BYTES, _SCM_RIGHTS_SPACE)
            if not message:
                return
            fds = _descriptors(ancillary)
            self._before()
            pid = self._syscall(*self._clone_arguments)
            if pid == 0:
                self._in_child()
                signal.signal(signal.SIGCHLD, child_signal)
                self._be_the_child(control, fds, run, resource)
            problem = _ctypes.get_errno()
            self._in_parent()
            for fd in fds:
                os.close(fd)
            if pid < 0:
                control.send(REFUSED + str(problem).encode())

    def _be_the_child(self, control: "Any", fds: "list[int]", run: "Callable[[], None]", resource: "Any") -> "NoReturn":  # noqa: ANN401
        try:
            self._prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
            os.setsid()
            for number, fd in enumerate(fds[:_DESCRIPTORS]):
                os.dup2(fd, number)
            control.send(BORN)
            if os.read(0, 1) != GO:
                os._exit(_FAILED_STATUS)
            for door in fds[_DESCRIPTORS:]:
                os.write(door, b"0")  # into the cgroup that is this call's own; the launcher looks whether it is there
            self._give_up(resource)
            os.closerange(_DESCRIPTORS, 0x7FFFFFFF)
            os.chdir(self._config["working_directory"])
            os.write(1, SET)
            if os.read(0, 1) != GO:
                os._exit(_FAILED_STATUS)
            run()
            status = 0
        except BaseException as error:  # noqa: BLE001 - nothing may come back into the zygote's own code
            said = " ".join(error.fields) if isinstance(error, StepError) else f"{type(error).__name__}: {error}"
            os.write(2, f"fumehood-sandbox: {said}\n".encode("utf-8", "replace"))
            status = _FAILED_STATUS
        os._exit(status)

    def _give_up(self, resource: "Any") -> None:  # noqa: ANN401
        """The capabilities that the new user namespace gave, ways to another one, and limits of all calls together."""
        for capability in range(self._capabilities):
            self._prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        if self._capset(*self._no_capabilities) != 0:
            raise StepError("capabilities", os.strerror(_ctypes.get_errno()))
        for name, value in self._config["child_rlimits"]:
            resource.setrlimit(getattr(resource, name), (value, value))
        attributes: bytes = self._config["child_landlock"]
        ruleset = self._raw(_SYS_LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
        if ruleset < 0 or self._raw(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
            raise StepError("landlock", os.strerror(_ctypes.get_errno()))
        if self._raw(self._seccomp_number, _SECCOMP_SET_MODE_FILTER, 0, self._program) != 0:
            raise StepError("seccomp", os.strerror(_ctypes.get_errno()))


def _descriptors(ancillary: "list[tuple[int, int, bytes]]") -> "list[int]":
    data = b"".join(part for _, _, part in ancillary)
    return [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data), 4)]


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
