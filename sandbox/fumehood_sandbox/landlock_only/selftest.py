"""The self-test without namespaces: runs beside `selftest`, and tries what must fail beside what must work.

As there: as few imports as can be, and nothing of the package, which isn't inside.
"""

import errno
import os
import resource
import signal
import socket

from selftest import CHECKS, Check, fails, main  # type: ignore[import-not-found] # the file beside it there

_SUPERVISOR = os.getppid()


def _file_system() -> Check:
    denied = all(
        fails(action, errno.EACCES)
        for action in (
            lambda: os.listdir("/"),  # noqa: PTH208 - as few imports as can be
            lambda: os.open("/etc/passwd", os.O_RDONLY),
            lambda: os.open("/dev/shm/fumehood-selftest", os.O_CREAT | os.O_WRONLY),  # noqa: S108 - denied
        )
    )
    with open("made", "wb") as stream:  # noqa: PTH123 - likewise
        works = stream.write(b"x") == 1
    return denied and works, "what isn't granted can't be opened, scratch is writable"


def _attributes() -> Check:
    # An owner could do each of these, and Landlock covers none.
    os.close(os.open("own", os.O_CREAT | os.O_WRONLY))
    denied = all(
        fails(action, errno.EPERM)
        for action in (
            lambda: os.chmod("own", 0o777),  # noqa: PTH101, S103 - likewise, and denied
            lambda: os.chown("own", -1, os.getgid()),
            lambda: os.utime("own"),
        )
    )
    return denied and os.stat("own").st_size == 0, "modes, owners and times can't be changed"  # noqa: PTH116 - likewise


def _scratch() -> Check:
    found = os.stat(".")  # noqa: PTH116 - likewise
    own = found.st_uid == os.getuid() and found.st_mode & 0o777 == 0o700  # noqa: PLR2004 - rights
    return own and os.getcwd() == os.environ["TMPDIR"], "a folder of its own; its size is not limited"  # noqa: PTH109 - likewise


def _processes() -> Check:
    denied = all(
        fails(lambda name=name: os.open(f"/proc/{_SUPERVISOR}/{name}", os.O_RDONLY), errno.EACCES, errno.ENOENT)
        for name in ("environ", "mem", "cmdline", "status")
    )
    signalled = fails(lambda: os.kill(_SUPERVISOR, signal.SIGCONT), errno.EPERM)
    limited = fails(lambda: resource.prlimit(_SUPERVISOR, resource.RLIMIT_NOFILE), errno.EPERM)
    os.close(os.open("/proc/self/environ", os.O_RDONLY))
    os.kill(os.getpid(), 0)
    return denied and signalled and limited, "others can't be read, signalled or limited; this one can"


def _group() -> Check:
    held = fails(os.setsid, errno.EPERM) and fails(lambda: os.setpgid(0, 0), errno.EPERM)
    return held and os.getpgid(0) == os.getpid(), "the process group can't be left"


def _network() -> Check:
    families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK)
    return all(fails(lambda each=each: socket.socket(each), errno.EPERM) for each in families), "no socket"


def _ipc() -> Check:
    import _ctypes  # noqa: PLC0415 - what is missing shall be this check's finding

    shmget = _ctypes.dlsym(_ctypes.dlopen(None, 0), "shmget")  # type: ignore[arg-type] # None is the program itself
    denied = _ctypes.call_function(shmget, (0, 4096, 0o600)) == -1
    os.close(os.pipe()[0])
    return denied, "no System V memory; pipes work"


def _capabilities() -> Check:
    with open("/proc/self/status", encoding="utf-8") as stream:  # noqa: PTH123 - likewise
        status = dict(line.split(":", 1) for line in stream if ":" in line)
    gone = not any(int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"))
    return gone and status["NoNewPrivs"].strip() == "1", "none, and none can be gained"


def _environment() -> Check:
    return set(os.environ) == {"GIVEN", "TMPDIR"}, "only what the policy names, and TMPDIR"


_AS_EVERYWHERE = {
    name: check for layer, name, check in CHECKS if layer in {"seccomp", "landlock", "identity", "rlimits"}
}

WITHOUT_NAMESPACES = (
    ("file system", "grants", _file_system),
    ("file system", "attributes", _attributes),
    ("scratch", "private folder", _scratch),
    ("processes", "other processes", _processes),
    ("processes", "process group", _group),
    ("network", "sockets", _network),
    ("ipc", "shared objects", _ipc),
    ("seccomp", "system-call filter", _AS_EVERYWHERE["system-call filter"]),
    ("landlock", "file rules", _AS_EVERYWHERE["file rules"]),
    ("identity", "unprivileged user", _AS_EVERYWHERE["unprivileged user"]),
    ("capabilities", "none", _capabilities),
    ("rlimits", "limits", _AS_EVERYWHERE["limits"]),
    ("environment", "clean environment", _environment),
)

if __name__ == "__main__":
    main(WITHOUT_NAMESPACES)
