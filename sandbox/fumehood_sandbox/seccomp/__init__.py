"""The system-call filter: assembler, numbers, the list, and the program made of it."""

from fumehood_sandbox.seccomp.alone import rules_without_namespaces
from fumehood_sandbox.seccomp.denylist import FORK_FLAGS, deny_list, no_namespaces, sealing_list
from fumehood_sandbox.seccomp.filter import encode, filter_program
from fumehood_sandbox.seccomp.numbers import ARCHITECTURES

__all__ = [
    "ARCHITECTURES",
    "FORK_FLAGS",
    "deny_list",
    "encode",
    "filter_program",
    "no_namespaces",
    "rules_without_namespaces",
    "sealing_list",
]
