"""The compiler of the deny-list: makes the BPF program that the kernel runs at each system call."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from fumehood_sandbox.seccomp import bpf
from fumehood_sandbox.seccomp.bpf import Instruction
from fumehood_sandbox.seccomp.numbers import Architecture
from fumehood_sandbox.seccomp.rule import Comparison, Condition, Rule


def filter_program(rules: Sequence[Rule], architecture: Architecture) -> tuple[Instruction, ...]:
    """The program that denies by these rules and allows the rest.

    Another architecture's calls (ia32 on x86_64) kill the process, since their numbers mean something else; a second
    ABI under the same architecture (x32) is answered with ENOSYS. Rules for calls that the architecture doesn't have
    are left out.
    """
    return (
        *_architecture_gate(architecture),
        *(
            instruction
            for rule in rules
            if (number := architecture.number(rule.syscall)) is not None
            for instruction in _block(rule, number)
        ),
        Instruction(bpf.RETURN, bpf.ALLOW),
    )


def encode(program: Sequence[Instruction]) -> bytes:
    """The program as an array of `struct sock_filter`, which is what bwrap's --seccomp reads."""
    return b"".join(instruction.encode() for instruction in program)


def _architecture_gate(architecture: Architecture) -> tuple[Instruction, ...]:
    gate = (
        Instruction(bpf.LOAD, bpf.OFFSET_ARCHITECTURE),
        Instruction(bpf.JUMP_EQUAL, architecture.audit, if_true=1),
        Instruction(bpf.RETURN, bpf.KILL_PROCESS),
        Instruction(bpf.LOAD, bpf.OFFSET_NUMBER),
    )
    if not architecture.foreign_bit:
        return gate
    return (
        *gate,
        Instruction(bpf.JUMP_ANY_BIT, architecture.foreign_bit, if_false=1),
        Instruction(bpf.RETURN, bpf.fail_with(errno.ENOSYS)),
    )


def _block(rule: Rule, number: int) -> tuple[Instruction, ...]:
    """One rule. The number is in the accumulator at its start and, whenever the rule doesn't deny, at its end."""
    tests = [instruction for condition in rule.conditions for instruction in _test(condition)]
    denied = Instruction(bpf.RETURN, bpf.fail_with(rule.errno))
    if not tests:
        return (Instruction(bpf.JUMP_EQUAL, number, if_false=1), denied)
    restore = Instruction(bpf.LOAD, bpf.OFFSET_NUMBER)
    body = [*tests, denied]
    # Each failing test leaves the block at `restore`, right behind the body.
    linked = [
        Instruction(
            instruction.code,
            instruction.operand,
            if_true=_resolve(instruction.if_true, index, len(body)),
            if_false=_resolve(instruction.if_false, index, len(body)),
        )
        for index, instruction in enumerate(body)
    ]
    return (Instruction(bpf.JUMP_EQUAL, number, if_false=len(body) + 1), *linked, restore)


_LEAVE = 255
"""Stands for "this test fails" until the length of the block is known."""


def _resolve(jump: int, index: int, length: int) -> int:
    return length - index - 1 if jump == _LEAVE else jump


def _test(condition: Condition) -> list[Instruction]:
    """Falls through to the next instruction when the condition holds, else leaves."""
    half = bpf.high_half if condition.high else bpf.low_half
    load = [Instruction(bpf.LOAD, half(condition.argument))]
    if condition.comparison is Comparison.ANY_BIT:
        return [*load, Instruction(bpf.JUMP_ANY_BIT, condition.mask, if_false=_LEAVE)]
    if condition.mask != 0xFFFFFFFF:  # noqa: PLR2004 - all bits
        load.append(Instruction(bpf.AND, condition.mask))
    values = condition.values
    if condition.comparison is Comparison.NOT_IN:
        return [*load, *(Instruction(bpf.JUMP_EQUAL, value, if_true=_LEAVE) for value in values)]
    comparisons = [
        Instruction(bpf.JUMP_EQUAL, value, if_true=len(values) - 1 - index) for index, value in enumerate(values[:-1])
    ]
    return [*load, *comparisons, Instruction(bpf.JUMP_EQUAL, values[-1], if_false=_LEAVE)]
