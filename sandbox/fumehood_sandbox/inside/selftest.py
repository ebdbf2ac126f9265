"""The self-test: runs inside a sandbox, and tries what must fail beside what must work.

`probe` reads its lines: layer, feature, yes or no, what was found. A sandbox that denies everything would be as wrong
as one that denies nothing, so each check has both halves. Takes nothing of the package, which isn't inside.
"""

import errno
import os
import resource
import socket
import sys
from collections.abc import Callable

Check = tuple[bool, str]


def fails(action: Callable[[], object], *expected: int) -> bool:
    """Whether it fails with one of these error numbers."""
    try:
        action()
    except OSError as error:
        return error.errno in expected
    return False


def _file_system() -> Check:
    hidden = not os.path.exists("/home") and not os.path.exists("/etc/shadow")  # noqa: PTH110 - as few imports as can be
    fixed = fails(lambda: os.mkdir("/made"), errno.EROFS, errno.EACCES)  # noqa: PTH102 - likewise
    with open("/tmp/made", "wb") as stream:  # noqa: PTH123, S108 - likewise; a private tmpfs
        scratch = stream.write(b"x") == 1
    return hidden and fixed and scratch, "the host's files absent, root fixed, scratch writable"


def _processes() -> Check:
    numbers = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - likewise
    return "1" in numbers and len(numbers) <= 3 and os.getpid() > 1, f"{len(numbers)} processes seen"  # noqa: PLR2004


def _network() -> Check:
    with open("/proc/net/dev", encoding="utf-8") as stream:  # noqa: PTH123 - likewise
        names = [line.split(":")[0].strip() for line in stream if ":" in line]
    return names == ["lo"], f"interfaces: {' '.join(names)}"


def _seccomp() -> Check:
    denied = fails(lambda: socket.socket(socket.AF_INET), errno.EPERM) and fails(
        lambda: socket.socket(socket.AF_UNIX), errno.EPERM
    )
    datagram = fails(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM), errno.EPERM)
    pair = socket.socketpair()
    pair[0].sendall(b"x")
    return denied and datagram and pair[1].recv(1) == b"x", "socket() denied, stream socketpair() works"


def _seccomp_covers_init() -> Check:
    with open("/proc/1/status", encoding="utf-8") as stream:  # noqa: PTH123 - likewise
        mode = next((line.split()[1] for line in stream if line.startswith("Seccomp:")), "0")
    return mode == "2", f"pid 1 runs under mode {mode}"


def _landlock() -> Check:
    # The mount and the file's own permissions would let this be written; only Landlock's rules don't.
    denied = fails(lambda: os.open("/proc/self/comm", os.O_WRONLY), errno.EACCES)
    os.close(os.open("/proc/self/comm", os.O_RDONLY))
    return denied, "a write that mounts allow is denied, the read beside it works"


def _init_memory() -> Check:
    denied = fails(lambda: os.open("/proc/1/mem", os.O_RDONLY), errno.EACCES, errno.EPERM)
    os.close(os.open("/proc/self/mem", os.O_RDONLY))
    return denied, "/proc/1/mem can't be opened, /proc/self/mem can"


def _identity() -> Check:
    users = {*os.getresuid(), *os.getresgid(), *os.getgroups()}
    denied = fails(lambda: os.setresuid(0, 0, 0), errno.EPERM, errno.EINVAL)
    return 0 not in users and denied, f"uid {os.getuid()}"


def _capabilities() -> Check:
    with open("/proc/self/status", encoding="utf-8") as stream:  # noqa: PTH123 - likewise
        status = dict(line.split(":", 1) for line in stream if ":" in line)
    sets = {name: int(value, 16) for name, value in status.items() if name.startswith("Cap")}
    return len(sets) == 5 and not any(sets.values()) and status["NoNewPrivs"].strip() == "1", "all five sets empty"  # noqa: PLR2004


def _rlimits() -> Check:
    low, high = resource.getrlimit(resource.RLIMIT_NOFILE)
    raised = False
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, high + 1))
        raised = True
    except (ValueError, OSError):
        pass
    return not raised and resource.getrlimit(resource.RLIMIT_CORE) == (1, 1), f"open files {high}, no core dumps"


def _environment() -> Check:
    return dict(os.environ) == {"GIVEN": "yes"}, "only what the policy names"


Checks = tuple[tuple[str, str, Callable[[], Check]], ...]

CHECKS: Checks = (
    ("namespaces", "file system", _file_system),
    ("namespaces", "processes", _processes),
    ("namespaces", "network", _network),
    ("seccomp", "system-call filter", _seccomp),
    ("seccomp", "filter on pid 1", _seccomp_covers_init),
    ("landlock", "file rules", _landlock),
    ("landlock", "/proc/1/mem", _init_memory),
    ("identity", "unprivileged user", _identity),
    ("capabilities", "none", _capabilities),
    ("rlimits", "limits", _rlimits),
    ("environment", "clean environment", _environment),
)


def main(checks: Checks = CHECKS) -> None:
    """Print a line a check."""
    for layer, feature, check in checks:
        try:
            holds, detail = check()
        except Exception as error:  # noqa: BLE001 - whatever breaks is a finding
            holds, detail = False, f"{type(error).__name__}: {error}"
        sys.stdout.write(f"{layer}\t{feature}\t{'yes' if holds else 'no'}\t{detail}\n")


if __name__ == "__main__":
    main()
