"""Becomes a program under a seccomp filter like those that engines and service managers put around theirs.

`python contained.py PROFILE COMMAND…` with this checkout's sandbox on the path. A profile is `engine`, what container
engines deny by default as far as it matters here (namespaces, mounts, the rest that needs CAP_SYS_ADMIN); `no-netlink`
and `no-hostname`, systemd's RestrictAddressFamilies= without AF_NETLINK and its ProtectHostname=; or the path of a
profile in Docker's format that denies by name.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import sys
from pathlib import Path

from fumehood_sandbox.seccomp import ARCHITECTURES, encode, filter_program
from fumehood_sandbox.seccomp.rule import Comparison, Condition, Rule

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_AF_NETLINK = 16
_NAMESPACE_FLAGS = 0x7E020000
_DENIED = (
    *("mount", "umount2", "pivot_root", "setns", "unshare", "fsopen", "fsconfig", "fsmount", "fspick", "move_mount"),
    *("open_tree", "mount_setattr", "add_key", "keyctl", "request_key", "bpf", "perf_event_open", "userfaultfd"),
    *("kexec_load", "init_module", "finit_module", "delete_module", "swapon", "swapoff", "reboot", "settimeofday"),
    *("open_by_handle_at", "name_to_handle_at", "quotactl", "acct", "move_pages", "lookup_dcookie"),
)


def rules(profile: str) -> tuple[Rule, ...]:
    """The deny-list of a profile."""
    if profile == "no-netlink":
        return (Rule("socket", errno.EAFNOSUPPORT, (Condition(0, Comparison.IN, (_AF_NETLINK,)),)),)
    if profile == "no-hostname":
        return tuple(Rule(name, errno.EPERM) for name in ("sethostname", "setdomainname"))
    if profile != "engine":
        document = json.loads(Path(profile).read_text(encoding="utf-8"))
        return tuple(Rule(name, each["errnoRet"]) for each in document["syscalls"] for name in each["names"])
    new_namespaces = Condition(0, Comparison.ANY_BIT, mask=_NAMESPACE_FLAGS)
    return (
        *(Rule(name, errno.EPERM) for name in _DENIED),
        Rule("clone", errno.EPERM, (new_namespaces,)),
        Rule("clone3", errno.ENOSYS),
    )


def main() -> None:
    """Load the filter and execute the command."""
    program = encode(filter_program(rules(sys.argv[1]), ARCHITECTURES[platform.machine()]))
    instructions = ctypes.create_string_buffer(program, len(program))

    class Fprog(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    fprog = Fprog(len(program) // 8, ctypes.addressof(instructions))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(fprog), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main()
