"""The system-call filter: assembler, numbers, the list, and the program made of it."""

from fumehood_sandbox.seccomp.denylist import FORK_FLAGS, child_list, deny_list, sealing_list
from fumehood_sandbox.seccomp.filter import encode, filter_program
from fumehood_sandbox.seccomp.numbers import ARCHITECTURES
from fumehood_sandbox.seccomp.without_namespaces import rules_without_namespaces

__all__ = [
    "ARCHITECTURES",
    "FORK_FLAGS",
    "child_list",
    "deny_list",
    "encode",
    "filter_program",
    "rules_without_namespaces",
    "sealing_list",
]
