"""What the filter denies besides where no namespaces stand behind it, on both architectures."""

from __future__ import annotations

import errno

import pytest
from fumehood_sandbox.seccomp import (
    ARCHITECTURES,
    deny_list,
    encode,
    filter_program,
    rules_without_namespaces,
    sealing_list,
)
from fumehood_sandbox.seccomp.numbers import Architecture

from tests.sandbox.test_filter import ALLOW, interpret

pytestmark = pytest.mark.promise("S904")

_RULES = (*rules_without_namespaces(), *sealing_list(), *deny_list())
_ARCHITECTURES = sorted(ARCHITECTURES.values(), key=lambda architecture: architecture.name)
_PROGRAMS = {each.name: encode(filter_program(_RULES, each)) for each in _ARCHITECTURES}
_UNCONDITIONAL = sorted({(rule.syscall, rule.errno) for rule in rules_without_namespaces() if not rule.conditions})
_OTHER = 4711
_TO_A_PROCESS = {
    # The place of the process number among the arguments, and arguments that are harmless for the caller itself.
    "prlimit64": (0, (0, 7, 0, 0)),
    "sched_setaffinity": (0, (0, 8, 1)),
    "sched_setscheduler": (0, (0, 0, 1)),
    "sched_setparam": (0, (0, 1)),
    "sched_setattr": (0, (0, 1, 0)),
    "setpriority": (1, (0, 0, 19)),
    "ioprio_set": (1, (1, 0, 3 << 13)),
}
_FIONREAD, _TCGETS, _FS_IOC_SETFLAGS, _FS_IOC_FSSETXATTR, _ENABLE_VERITY = (
    0x541B,
    0x5401,
    0x40086602,
    0x401C5820,
    0x40806685,
)
each_architecture = pytest.mark.parametrize("architecture", _ARCHITECTURES, ids=lambda architecture: architecture.name)


def _answer(architecture: Architecture, syscall: str, *arguments: int) -> str:
    number = architecture.number(syscall)
    assert number is not None
    action = interpret(_PROGRAMS[architecture.name], number, architecture.audit, arguments)
    return "allowed" if action == ALLOW else errno.errorcode[action & 0xFFFF]


@each_architecture
def test_what_is_always_denied_is_denied_whatever_the_arguments(architecture: Architecture) -> None:
    for syscall, number in _UNCONDITIONAL:
        if architecture.number(syscall) is None:  # old names, which only x86_64 has
            continue
        for arguments in ((0, 0, 0, 0, 0, 0), (2**64 - 1,) * 6):
            assert _answer(architecture, syscall, *arguments) == errno.errorcode[number], syscall


@each_architecture
def test_old_and_new_names_of_a_call_are_denied_alike(architecture: Architecture) -> None:
    denied = {syscall for syscall, _ in _UNCONDITIONAL}
    families = (
        {"chmod", "fchmod", "fchmodat", "fchmodat2"},
        {"chown", "fchown", "lchown", "fchownat"},
        {"utime", "utimes", "futimesat", "utimensat"},
        {"setxattr", "lsetxattr", "fsetxattr", "setxattrat"},
        {"removexattr", "lremovexattr", "fremovexattr", "removexattrat"},
        {"getxattr", "lgetxattr", "getxattrat"},
        {"listxattr", "llistxattr", "listxattrat"},
        {"setsid", "setpgid"},
    )
    for family in families:
        assert family <= denied
        assert any(architecture.number(each) is not None for each in family)


@each_architecture
@pytest.mark.parametrize("syscall", _TO_A_PROCESS)
def test_only_the_caller_itself_can_be_named(architecture: Architecture, syscall: str) -> None:
    place, own = _TO_A_PROCESS[syscall]
    another = tuple(_OTHER if index == place else value for index, value in enumerate(own))
    assert _answer(architecture, syscall, *own) == "allowed"
    assert _answer(architecture, syscall, *another) == "EPERM"


@each_architecture
def test_nobody_can_be_named_by_his_user(architecture: Architecture) -> None:
    assert _answer(architecture, "setpriority", 2, 0, 19) == "EPERM"
    assert _answer(architecture, "ioprio_set", 3, 0, 0) == "EPERM"


@each_architecture
def test_ioctl_asks_and_changes_nothing(architecture: Architecture) -> None:
    for command in (_FIONREAD, _TCGETS):
        assert _answer(architecture, "ioctl", 3, command, 0) == "allowed"
    for command in (_FS_IOC_SETFLAGS, _FS_IOC_FSSETXATTR, _ENABLE_VERITY):
        for high in (0, 1 << 32):
            assert _answer(architecture, "ioctl", 3, command | high, 0) == "ENOTTY"


@each_architecture
def test_what_programs_live_by_is_allowed(architecture: Architecture) -> None:
    assert _answer(architecture, "openat", 0, 0, 0o2, 0) == "allowed"
    assert _answer(architecture, "clone", 0x1200011, 0) == "allowed"
    assert _answer(architecture, "socketpair", 1, 1, 0) == "allowed"
