"""Classic BPF: the few instructions that a seccomp filter needs.

Source: linux/filter.h, linux/seccomp.h, seccomp(2). A filter sees `struct seccomp_data`: the number at 0, the
architecture at 4, the instruction pointer at 8, and six 64-bit arguments from 16.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass

OFFSET_NUMBER = 0
OFFSET_ARCHITECTURE = 4
_OFFSET_ARGUMENTS = 16

LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
JUMP_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
JUMP_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
RETURN = 0x06  # BPF_RET | BPF_K

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000


@dataclass(frozen=True, slots=True)
class Instruction:
    """One `struct sock_filter`. The jumps count instructions to skip, at most 255."""

    code: int
    operand: int
    if_true: int = 0
    if_false: int = 0

    def encode(self) -> bytes:
        """The eight bytes that the kernel reads, in the machine's own byte order."""
        return struct.pack("=HBBI", self.code, self.if_true, self.if_false, self.operand)


def fail_with(errno: int) -> int:
    """The action that makes a call fail with `errno`."""
    return _ERRNO | errno


def low_half(argument: int) -> int:
    """Where the low 32 bits of an argument lie, from 0, counted as system calls count.

    The kernel takes flags and commands of 32 bits from the low half alone, so a filter that compared all 64 bits could
    be passed by setting a high one (CVE-2019-10063).
    """
    return _OFFSET_ARGUMENTS + 8 * argument + (0 if sys.byteorder == "little" else 4)


def high_half(argument: int) -> int:
    """Where the high 32 bits lie: of a pointer, whose low half alone may well be 0."""
    return _OFFSET_ARGUMENTS + 8 * argument + (4 if sys.byteorder == "little" else 0)
