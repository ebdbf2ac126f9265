"""Programs: what is run inside a sandbox."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Executable:
    """A program that replaces the sandbox's inner stage by execve(2)."""

    argv: tuple[str, ...]
    """Program and arguments. The first is an absolute path inside, or a name looked up on the policy's PATH inside."""


@dataclass(frozen=True, slots=True)
class PythonModule:
    """A Python module that runs, as `python -m` would, in the interpreter that has just applied the inner layers.

    It saves a second start of the interpreter, and is as tightly held: every layer is in force before the module is
    found.
    """

    module: str
    """Dotted name of the module."""
    argv: tuple[str, ...] = ()
    """Its `sys.argv[1:]`."""
    path: tuple[str, ...] = ()
    """Folders inside that come first on `sys.path`, in order; the standard library follows. No site-packages."""
    forks: int = 0
    """Most children at a time that it forks by request, each in namespaces of its own; 0: none, the usual case.

    Such a program is started by `ForkServer` alone. It finds a module `fumehood_zygote` and calls its
    `serve(stop_fd, run)` once it is ready, with one thread, no other process and no descriptor beyond those it began
    with. `run()` is called in each child; `serve` comes back when there is something to read from `stop_fd`.
    """


Program = Executable | PythonModule
