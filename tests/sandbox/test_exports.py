"""The public names, pinned."""

from __future__ import annotations

import fumehood_sandbox


def test_public_names_are_these() -> None:
    assert set(fumehood_sandbox.__all__) == {
        "Backend", "Bubblewrap", "Cgroups", "Control", "Executable", "Finding", "ForkServer", "ForkedProcess",
        "IsolationProblem", "LaunchError", "LaunchThread", "Launching", "Layer", "Leaf", "Level", "Limits", "Mount",
        "Policy", "PolicyError", "Program", "PythonModule", "Receipt", "Report", "SandboxError",
        "SandboxUnavailableError", "SandboxedProcess", "SUPERVISOR_STEP", "authorities_runtime", "bubblewraps",
        "cgroups", "check", "isolation_problem", "launch", "launch_thread", "probe", "python_runtime",
        "speculation_control", "start", "system_runtime",
    }  # fmt: skip
    assert all(hasattr(fumehood_sandbox, name) for name in fumehood_sandbox.__all__)
