"""Exceptions: what can go wrong before a sandboxed process runs."""

from __future__ import annotations


class SandboxError(Exception):
    """Root of this package's exceptions."""


class PolicyError(SandboxError):
    """The policy contradicts itself or asks for what no sandbox gives. The caller of `launch` must change it."""

    def __init__(self, field: str, problem: str) -> None:
        """`field` names the policy's field at fault; `problem` says what is wrong and what to do."""
        super().__init__(f"policy.{field}: {problem}")
        self.field = field
        self.problem = problem


class SandboxUnavailableError(SandboxError):
    """This machine can't enforce the policy.

    The operator must supply `feature`, or run elsewhere. Nothing was started.
    """

    def __init__(self, feature: str, problem: str, remedy: str = "") -> None:
        """Keep the missing thing's stable name, what was found, and how to get it (may be empty)."""
        super().__init__(f"{feature}: {problem}" + (f" ({remedy})" if remedy else ""))
        self.feature = feature
        self.problem = problem
        self.remedy = remedy


class LaunchError(SandboxError):
    """A step of the launch failed on this machine although the feature is there. Nothing of the program ran.

    `step` names the step ("namespaces", "mounts", "landlock", "exec"…), `path` what it was about (may be empty),
    `errno` the kernel's answer (0 when there was none).
    """

    def __init__(self, step: str, problem: str, *, path: str = "", errno: int = 0) -> None:
        """Keep the step, the text of what happened, the path and the error number."""
        super().__init__(f"{step}: {problem}" + (f": {path}" if path else ""))
        self.step = step
        self.problem = problem
        self.path = path
        self.errno = errno
