"""The filter's meaning for both architectures, by an interpreter of our own, since the kernel here runs only one."""

from __future__ import annotations

import errno
import struct

import pytest
from fumehood_sandbox.seccomp import (
    ARCHITECTURES,
    FORK_FLAGS,
    child_list,
    deny_list,
    encode,
    filter_program,
    sealing_list,
)
from fumehood_sandbox.seccomp.numbers import AARCH64, X86_64, Architecture
from fumehood_sandbox.seccomp.rule import Comparison, Condition, Rule
from hypothesis import given
from hypothesis import strategies as st

ALLOW = 0x7FFF0000
KILL = 0x80000000
EPERM = 0x00050000 | errno.EPERM
ENOSYS = 0x00050000 | errno.ENOSYS
ARCHES = sorted(ARCHITECTURES.values(), key=lambda architecture: architecture.name)
each_architecture = pytest.mark.parametrize("architecture", ARCHES, ids=lambda architecture: architecture.name)
PROGRAMS = {each.name: encode(filter_program(deny_list(), each)) for each in ARCHES}
SEALS = {each.name: encode(filter_program(sealing_list(), each)) for each in ARCHES}
CHILDREN = {each.name: encode(filter_program(child_list(), each)) for each in ARCHES}
BIG = st.integers(0, 2**64 - 1)


def interpret(program: bytes, number: int, audit: int, arguments: tuple[int, ...]) -> int:
    """What the kernel would answer: the machine of linux/filter.h, as far as seccomp admits it."""
    arguments = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, audit, 0, *arguments)
    accumulator, at = 0, 0
    instructions = list(struct.iter_unpack("=HBBI", program))
    while True:
        code, if_true, if_false, operand = instructions[at]
        at += 1
        match code:
            case 0x20:
                assert operand % 4 == 0
                (accumulator,) = struct.unpack_from("=I", data, operand)
            case 0x54:
                accumulator &= operand
            case 0x15:
                at += if_true if accumulator == operand else if_false
            case 0x45:
                at += if_true if accumulator & operand else if_false
            case 0x06:
                return int(operand)
            case _:
                raise AssertionError(f"instruction {code:#x}")


def answer(architecture: Architecture, syscall: str, *arguments: int) -> int:
    number = architecture.number(syscall)
    assert number is not None
    return interpret(PROGRAMS[architecture.name], number, architecture.audit, arguments)


def denied_by(rule: Rule, arguments: tuple[int, ...]) -> bool:
    """A rule's meaning, said a second time."""

    def holds(condition: Condition) -> bool:
        low = arguments[condition.argument] >> (32 if condition.high else 0) & 0xFFFFFFFF & condition.mask
        match condition.comparison:
            case Comparison.IN:
                return low in condition.values
            case Comparison.NOT_IN:
                return low not in condition.values
            case Comparison.ANY_BIT:
                return low != 0

    return all(holds(condition) for condition in rule.conditions)


@pytest.mark.promise("S313")
@each_architecture
@given(number=st.integers(0, 600), arguments=st.tuples(*[BIG | st.sampled_from([0, 1, 2, 0x5412, 0o4755])] * 6))
def test_filter_means_what_its_rules_say(architecture: Architecture, number: int, arguments: tuple[int, ...]) -> None:
    rules = [rule for rule in deny_list() if architecture.number(rule.syscall) == number]
    errnos = {0x00050000 | rule.errno for rule in rules if denied_by(rule, arguments)}
    found = interpret(PROGRAMS[architecture.name], number, architecture.audit, arguments)
    assert found in errnos if errnos else found == ALLOW


@pytest.mark.promise("S311")
@each_architecture
@given(number=st.integers(0, 2**32 - 1), audit=st.integers(0, 2**32 - 1), arguments=st.tuples(*[BIG] * 6))
def test_another_architecture_kills(
    architecture: Architecture, number: int, audit: int, arguments: tuple[int, ...]
) -> None:
    expected = interpret(PROGRAMS[architecture.name], number, audit, arguments)
    assert (expected == KILL) == (audit != architecture.audit)


@pytest.mark.promise("S311")
@given(number=st.integers(0, 0x3FFFFFFF), arguments=st.tuples(*[BIG] * 6))
def test_x32_calls_do_not_exist(number: int, arguments: tuple[int, ...]) -> None:
    assert interpret(PROGRAMS["x86_64"], number | 0x40000000, X86_64.audit, arguments) == ENOSYS


@pytest.mark.promise("S313")
@each_architecture
def test_every_rule_has_a_call_that_it_denies(architecture: Architecture) -> None:
    for rule in deny_list():
        if architecture.number(rule.syscall) is None or rule.conditions:
            continue
        assert answer(architecture, rule.syscall) == 0x00050000 | rule.errno, rule.syscall


@pytest.mark.promise("S313")
@each_architecture
@pytest.mark.parametrize(
    ("syscall", "denied", "allowed"),
    [
        ("clone", (0x10000000,), (0x01200011,)),
        ("clone", (0x1_0000_0000 | 0x20000,), (0x1_0000_0000,)),
        ("unshare", (0x80,), (0x200,)),
        ("ioctl", (0, 0x5412), (0, 0x5413)),
        ("ioctl", (0, 0xFFFFFFFF_00005412), (0, 0xFFFFFFFF_00005401)),
        ("ioctl", (0, 0x541C), (0, 0x541B)),
        ("socketpair", (1, 2), (1, 1)),
        ("socketpair", (2, 1), (1, 5)),
        ("socketpair", (1, 0o2004002), (1, 0o2004001)),
        ("fcntl", (0, 1024), (0, 1031)),
        ("mmap", (0, 4096, 3, 0x40022), (0, 4096, 3, 0x20022)),
        ("memfd_create", (0, 0x5), (0, 0x3)),
        ("fcntl", (0, 0xFFFFFFFF_00000402), (0, 4)),
        ("clone", (0x8011,), (0x11,)),
        ("prlimit64", (1, 7, 1 << 20, 0), (0, 7, 1 << 20, 0)),
        ("prlimit64", (1 << 40 | 1, 7, 1 << 20, 0), (11, 7, 1 << 20, 0)),
        ("personality", (0x0004_0000,), (0xFFFFFFFF,)),
        ("fchmod", (0, 0o4755), (0, 0o1755)),
        ("fchmodat", (0, 0, 0o2755), (0, 0, 0o755)),
        ("openat", (0, 0, 0o101, 0o4755), (0, 0, 0o101, 0o755)),
        ("openat", (0, 0, 0o20200001, 0o4755), (0, 0, 0o1, 0o4755)),
        ("mknodat", (0, 0, 0o20666, 0), (0, 0, 0o666, 0)),
        ("mknodat", (0, 0, 0o60666, 0), (0, 0, 0o100666, 0)),
        ("mknodat", (0, 0, 0o10666, 0), (0, 0, 0o100666, 0)),
        ("mknodat", (0, 0, 0o140666, 0), (0, 0, 0o100666, 0)),
        ("renameat2", (0, 0, 0, 0, 4), (0, 0, 0, 0, 3)),
    ],
)
def test_arguments_decide(
    architecture: Architecture, syscall: str, denied: tuple[int, ...], allowed: tuple[int, ...]
) -> None:
    assert answer(architecture, syscall, *denied) == EPERM
    assert answer(architecture, syscall, *allowed) == ALLOW


@pytest.mark.promise("S506")
@each_architecture
@pytest.mark.parametrize(
    ("syscall", "kept", "allowed"),
    [
        ("setrlimit", (4, 1 << 20), (7, 1 << 20)),
        ("setrlimit", (1 << 32 | 4, 1 << 20), (3, 1 << 20)),
        ("prlimit64", (0, 4, 1 << 20, 0), (0, 4, 0, 1 << 20)),
        ("prlimit64", (0, 4, 1 << 32, 0), (0, 7, 1 << 32, 0)),
    ],
)
def test_limit_of_core_dumps_is_kept_and_can_be_asked_for(
    architecture: Architecture, syscall: str, kept: tuple[int, ...], allowed: tuple[int, ...]
) -> None:
    number = architecture.number(syscall)
    assert number is not None
    assert interpret(SEALS[architecture.name], number, architecture.audit, kept) == 0x00050000
    assert interpret(SEALS[architecture.name], number, architecture.audit, allowed) == ALLOW


@pytest.mark.promise("S701")
@each_architecture
def test_children_of_a_zygote_make_no_namespaces_and_no_watches(architecture: Architecture) -> None:
    def asked(syscall: str, *arguments: int) -> int:
        number = architecture.number(syscall)
        return (
            ENOSYS if number is None else interpret(CHILDREN[architecture.name], number, architecture.audit, arguments)
        )

    assert asked("clone", FORK_FLAGS) == EPERM
    assert asked("unshare", 0x10000000) == EPERM
    assert asked("inotify_init1", 0) == ENOSYS
    assert asked("inotify_init") == ENOSYS
    assert asked("clone", 0x01200011) == ALLOW, "control: a child"
    assert answer(architecture, "inotify_init1", 0) == ALLOW, "control: everybody else"


@pytest.mark.promise("S313")
@each_architecture
def test_program_is_one_that_the_kernel_takes(architecture: Architecture) -> None:
    program = PROGRAMS[architecture.name]
    assert 0 < len(program) // 8 <= 4096
    last_code, *_ = struct.unpack_from("=HBBI", program, len(program) - 8)
    assert last_code == 0x06


def test_aarch64_has_no_second_abi() -> None:
    assert interpret(PROGRAMS["aarch64"], 0x40000000 | 63, AARCH64.audit, ()) == ALLOW
