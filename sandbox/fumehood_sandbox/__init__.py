"""A sandbox for one Linux process tree: one `Policy` in, one process and its `Receipt` out."""

from fumehood_sandbox.backend import Backend
from fumehood_sandbox.cgroup import Cgroups, Control, Leaf, cgroups
from fumehood_sandbox.errors import LaunchError, PolicyError, SandboxError, SandboxUnavailableError
from fumehood_sandbox.fork.handshake import SUPERVISOR_STEP
from fumehood_sandbox.fork.probe import IsolationProblem, isolation_problem
from fumehood_sandbox.fork.process import ForkedProcess
from fumehood_sandbox.fork.server import ForkServer
from fumehood_sandbox.inside.speculation import speculation_control
from fumehood_sandbox.launch import launch, start
from fumehood_sandbox.launch_thread import LaunchThread, launch_thread
from fumehood_sandbox.level import Level
from fumehood_sandbox.limits import Limits
from fumehood_sandbox.outside.bubblewrap import Bubblewrap, bubblewraps
from fumehood_sandbox.outside.launching import Launching
from fumehood_sandbox.outside.runtime_mounts import authorities_runtime, python_runtime, system_runtime
from fumehood_sandbox.policy import Mount, Policy
from fumehood_sandbox.probe import Finding, Report, check, probe
from fumehood_sandbox.process import SandboxedProcess
from fumehood_sandbox.program import Executable, Program, PythonModule
from fumehood_sandbox.receipt import Layer, Receipt

__all__ = [
    "SUPERVISOR_STEP",
    "Backend",
    "Bubblewrap",
    "Cgroups",
    "Control",
    "Executable",
    "Finding",
    "ForkServer",
    "ForkedProcess",
    "IsolationProblem",
    "LaunchError",
    "LaunchThread",
    "Launching",
    "Layer",
    "Leaf",
    "Level",
    "Limits",
    "Mount",
    "Policy",
    "PolicyError",
    "Program",
    "PythonModule",
    "Receipt",
    "Report",
    "SandboxError",
    "SandboxUnavailableError",
    "SandboxedProcess",
    "authorities_runtime",
    "bubblewraps",
    "cgroups",
    "check",
    "isolation_problem",
    "launch",
    "launch_thread",
    "probe",
    "python_runtime",
    "speculation_control",
    "start",
    "system_runtime",
]
