"""The probe: what this machine can enforce, found by starting a sandbox and trying to get out of it."""

from __future__ import annotations

import functools
import os
import platform
import select
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fumehood_sandbox import landlock_only
from fumehood_sandbox.backend import Backend
from fumehood_sandbox.cgroup import Control, cgroups
from fumehood_sandbox.errors import LaunchError, SandboxError, SandboxUnavailableError
from fumehood_sandbox.fork.probe import isolation_problem
from fumehood_sandbox.launch import launch
from fumehood_sandbox.level import Level
from fumehood_sandbox.outside import bubblewrap
from fumehood_sandbox.outside.landlock import supported_abi
from fumehood_sandbox.policy import Mount, Policy
from fumehood_sandbox.process import SandboxedProcess
from fumehood_sandbox.program import PythonModule
from fumehood_sandbox.seccomp import ARCHITECTURES

Status = Literal["in force", "weaker", "missing"]

_FOLDER = Path(__file__).resolve().parent
_SELFTESTS = {
    "selftest": _FOLDER / "inside" / "selftest.py",
    "selftest_alone": _FOLDER / "landlock_only" / "selftest.py",
}
_MODULES = {Backend.NAMESPACES: "selftest", Backend.LANDLOCK: "selftest_alone"}
_INSIDE = "/run/fumehood/selftest"
_TIMEOUT_S = 20.0
"""The checks take 30 ms. A machine that needs this long is not one to serve from."""
_LONGEST_ANSWER_BYTES = 64 * 1024
_OLDEST_ABI_WITH_SCOPES = 6


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one feature."""

    layer: str
    """As in a receipt: "namespaces", "seccomp", "landlock"…"""
    feature: str
    status: Status
    detail: str
    """What was found, for people."""
    remedy: str = ""
    """How the operator gets what is missing; empty when nothing is."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was found."""

    findings: tuple[Finding, ...]

    @property
    def missing(self) -> tuple[Finding, ...]:
        """The mandatory features that aren't there."""
        return tuple(finding for finding in self.findings if finding.status == "missing")

    @property
    def usable(self) -> bool:
        """Whether a sandbox can be had here. All layers are mandatory."""
        return bool(self.findings) and not self.missing


def probe(backend: Backend = Backend.NAMESPACES) -> Report:
    """Try every layer of a backend. Takes some 50 ms, and starts processes; the same thread rule as for `launch`."""
    platform_finding = _platform()
    if platform_finding.status == "missing":
        return Report((platform_finding,))
    if backend is Backend.LANDLOCK:
        findings = [platform_finding, _landlock_alone()]
    else:
        findings = [platform_finding, _bubblewrap(), _landlock()]
    if not any(finding.status == "missing" for finding in findings):
        if backend is Backend.NAMESPACES:
            findings.append(_cgroups())
        findings.extend(_inside(backend))
        if backend is Backend.NAMESPACES:
            findings.append(_isolation())
    return Report(tuple(findings))


@functools.cache
def _cached_probe(backend: Backend) -> Report:
    return probe(backend)


def check(minimum: Backend = Backend.NAMESPACES) -> Report:
    """The report of this process's first probe of the strongest backend that can be had, down to the minimum.

    Raises:
        SandboxUnavailableError: none can; it names the first layer that is missing, of the strongest backend.
    """
    reports = [_cached_probe(Backend.NAMESPACES)]
    if minimum is Backend.LANDLOCK and not reports[0].usable:
        reports.append(_cached_probe(Backend.LANDLOCK))
    if reports[-1].usable:
        return reports[-1]
    problems = [f"{report.missing[0].feature}: {report.missing[0].detail}" for report in reports]
    finding = reports[0].missing[0]
    raise SandboxUnavailableError(finding.layer, "; without namespaces: ".join(problems), finding.remedy)


def _platform() -> Finding:
    found = f"{sys.platform}, {platform.machine()}, kernel {platform.release()}"
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES:
        return Finding("platform", "Linux", "missing", found, f"run on Linux, on {' or '.join(ARCHITECTURES)}")
    return Finding("platform", "Linux", "in force", found)


def _bubblewrap() -> Finding:
    try:
        path = bubblewrap.find()
    except SandboxUnavailableError as error:
        return Finding("namespaces", "bubblewrap", "missing", error.problem, error.remedy)
    origin = next(each.origin for each in bubblewrap.bubblewraps() if each.path == path)
    return Finding("namespaces", "bubblewrap", "in force", f"{path} ({origin}): {', '.join(bubblewrap.NAMESPACES)}")


def _landlock() -> Finding:
    abi = supported_abi()
    if not abi:
        remedy = "use Linux 5.13 or later, with landlock in the boot option lsm="
        return Finding("landlock", "kernel support", "missing", "the kernel has none", remedy)
    without = (
        "" if abi >= _OLDEST_ABI_WITH_SCOPES else "; no scopes, signals and sockets are held by the namespaces alone"
    )
    return Finding("landlock", "kernel support", "in force", f"ABI {abi}{without}")


def _landlock_alone() -> Finding:
    problem = landlock_only.unavailable()
    if problem is not None:
        return Finding(problem.feature, "kernel support", "missing", problem.problem, problem.remedy)
    return Finding("landlock", "kernel support", "in force", f"ABI {supported_abi()}, with scopes")


def _cgroups() -> Finding:
    found = cgroups()
    if not found.missing and Control.QUOTA not in found.controls:
        problems = "; ".join(found.problems) or "no hierarchy with the controller cpu"
        return Finding("cgroup", "leaf", "weaker", f"{found.describe()}; nothing bounds cpus: {problems}", _DELEGATE)
    if not found.missing:
        return Finding("cgroup", "leaf", "in force", found.describe())
    have = found.describe() or "none"
    lacking = ", ".join(found.missing)
    problems = "; ".join(found.problems) or "no hierarchy is mounted"
    detail = f"{have}; limits of each process and a watchdog stand in for {lacking}, nothing for cpus: {problems}"
    return Finding("cgroup", "leaf", "weaker", detail, _DELEGATE)


_DELEGATE = (
    "give the sidecar a cgroup of its own: Delegate=yes in its systemd unit, or a container whose /sys/fs/cgroup is "
    "writable"
)


def _isolation() -> Finding:
    found = isolation_problem()
    if found is None:
        return Finding(
            "isolation", "a process for each call", "in force", "forked from a zygote, namespaces of its own"
        )
    detail = f"{found.problem}: each is launched anew, which takes a hundred times as long"
    return Finding("isolation", "a process for each call", "weaker", detail, found.remedy)


def _inside(backend: Backend) -> list[Finding]:
    # At the highest level that needs no grant; the layers are the same at each.
    policy = Policy(
        level=Level.WRITE,
        minimum=backend,
        runtime=tuple(Mount(str(path), f"{_INSIDE}/{name}.py") for name, path in _SELFTESTS.items()),
        environment=(("GIVEN", "yes"),),
        identity="fumehood selftest",
    )
    try:
        module = PythonModule(_MODULES[backend], path=(_INSIDE,))
        with launch(policy, module, timeout_s=_TIMEOUT_S, backend=backend) as process:
            weaker = process.receipt.weaker if backend is Backend.LANDLOCK else ()
            answer, complaint = _read_both(process)
            description = process.exit_description
    except LaunchError as error:
        return [Finding(error.step, "sandbox", "missing", error.problem, bubblewrap.remedy_for(error.problem))]
    except SandboxUnavailableError as error:
        return [Finding(error.feature, "sandbox", "missing", error.problem, error.remedy)]
    except SandboxError as error:
        return [Finding("sandbox", "sandbox", "missing", str(error))]
    lines = [line.split("\t") for line in answer.splitlines()]
    findings = [
        Finding(
            layer,
            feature,
            "missing" if holds != "yes" else "weaker" if layer in weaker else "in force",
            detail,
            "" if holds == "yes" else _REPORT_IT,
        )
        for layer, feature, holds, detail in (line for line in lines if len(line) == 4)  # noqa: PLR2004 - as written
    ]
    if not findings:
        findings.append(
            Finding("sandbox", "self-test", "missing", f"{description}: {complaint.strip()[-500:]}", _REPORT_IT)
        )
    return findings


_REPORT_IT = "the kernel does not do what it says it does: report it with this output"


def _read_both(process: SandboxedProcess) -> tuple[str, str]:
    """Read stdout and stderr to their ends, within the time."""
    deadline = time.monotonic() + _TIMEOUT_S
    parts = {process.stdout: bytearray(), process.stderr: bytearray()}
    poller = select.poll()
    for fd in parts:
        poller.register(fd, select.POLLIN)
    unfinished = set(parts)
    while unfinished and (left_s := deadline - time.monotonic()) > 0:
        for fd, _ in poller.poll(left_s * 1000):
            part = os.read(fd, 4096)
            if not part or len(parts[fd]) > _LONGEST_ANSWER_BYTES:
                poller.unregister(fd)
                unfinished.discard(fd)
            parts[fd] += part
    process.wait(max(deadline - time.monotonic(), 0.0))
    return parts[process.stdout].decode("utf-8", "replace"), parts[process.stderr].decode("utf-8", "replace")
