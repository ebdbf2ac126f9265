"""The report of `fumehood doctor`: the sandbox's probes, the machine, the configuration and the sidecar."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fumehood_sandbox import Backend, Report, bubblewraps, probe, speculation_control

from fumehood_server.errors import ConfigError
from fumehood_server.model.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fumehood_server.cli.doctor_callers import CallerFinding
    from fumehood_server.cli.doctor_changes import Change
    from fumehood_server.plugins.lock import Lock
    from fumehood_server.plugins.manifest import Manifest

MISSING = "missing"
"""The one status that makes a machine unusable."""

_VERSION_TIMEOUT_S = 5.0
"""`bwrap --version` prints a line and exits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check and its outcome."""

    area: str
    """"machine", "sandbox", "landlock" (the sandbox without namespaces), "configuration" or "sidecar"."""
    layer: str
    """Within the sandbox its layer, as in receipts; elsewhere what was checked."""
    feature: str
    status: str
    """"in force", "weaker" or "missing" in the sandbox; "ok", "note" or "missing" elsewhere."""
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All findings."""

    findings: tuple[Finding, ...]

    @property
    def usable(self) -> bool:
        """Whether a sidecar can serve here with this configuration."""
        return not any(finding.status == MISSING for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {"usable": self.usable, "findings": [asdict(finding) for finding in self.findings]}


def make_doctor_report(config_path: Path | None, address: str | None) -> DoctorReport:
    """Run all checks. Takes about a second, starts processes, and changes nothing."""
    from fumehood_server.cli.folder_check import sandbox_of

    sandbox = _sandbox(sandbox_of(config_path).minimum)
    sidecar, served = _sidecar(address, config_path)
    return DoctorReport((*_machine(), *sandbox, *_configuration(config_path, served), *sidecar))


def _machine() -> list[Finding]:
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    system = f"{release.get('PRETTY_NAME', sys.platform)}, kernel {platform.release()}, {platform.machine()}"
    return [
        Finding(
            area="machine",
            layer="python",
            feature="interpreter",
            status="ok",
            detail=f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}",
        ),
        Finding(area="machine", layer="kernel", feature="system", status="ok", detail=system),
        Finding(
            area="machine",
            layer="identity",
            feature="user",
            status="ok",
            detail="root: each plugin gets a user id of its own"
            if os.geteuid() == 0
            else f"user {os.geteuid()}, without root's rights: plugins run as it",
        ),
        _speculation(),
        *_bubblewraps(),
    ]


def _speculation() -> Finding:
    """Whether this kernel lets plugins' processes be held back from speculation, as each receipt says of its own."""
    kinds = speculation_control()
    said = ", ".join(f"{name} {'is off in plugins, or harmless' if safe else 'stays on'}" for name, safe in kinds)
    held = all(safe for _, safe in kinds)
    remedy = (
        "a kernel since 4.20, booted without mitigations=off, has the control where the processor has it; a virtual "
        "machine must be handed it"
    )
    return Finding(
        area="machine",
        layer="kernel",
        feature="speculation",
        status="ok" if held else "note",
        detail=said,
        remedy="" if held else remedy,
    )


def _bubblewraps() -> list[Finding]:
    """Every bubblewrap that is installed, working or not: the sandbox's report names only the chosen one."""
    return [
        Finding(
            area="machine",
            layer="bubblewrap",
            feature=each.origin,
            status="note" if each.problem else "ok",
            detail=f"{each.path}: {_version(each.path)}" + (f"; {each.problem}" if each.problem else ""),
            remedy=each.remedy,
        )
        for each in bubblewraps()
    ]


def _version(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not say its version ({type(error).__name__})"
    return done.stdout.strip() or f"does not say its version (exit status {done.returncode})"


def _sandbox(minimum: Backend) -> list[Finding]:
    """Both backends, each tried, and which of them a sidecar would use."""
    namespaces, alone = probe(Backend.NAMESPACES), probe(Backend.LANDLOCK)
    falls_back = minimum is Backend.LANDLOCK and not namespaces.usable and alone.usable
    used = "namespaces" if namespaces.usable else "landlock, without namespaces" if falls_back else "none"
    allowed = "is allowed" if minimum is Backend.LANDLOCK else "is not allowed"
    offer = "" if namespaces.usable or falls_back or not alone.usable else _OFFER
    return [
        Finding(
            area="sandbox",
            layer="backend",
            feature="choice",
            status="in force" if namespaces.usable else "weaker" if falls_back else MISSING,
            detail=f'used: {used}; minimum = "{minimum}", so that less than namespaces {allowed}',
            remedy=offer,
        ),
        *_probe_findings("sandbox", namespaces, needed=not falls_back),
        *_probe_findings("landlock", alone, needed=minimum is Backend.LANDLOCK and not namespaces.usable),
    ]


_OFFER = (
    'this machine can hold sandboxes without namespaces: `minimum = "landlock"` in [sandbox] of fumehood.toml accepts '
    "that; docs/deploy/README.md says what is weaker then, and what namespaces need"
)


def _probe_findings(area: str, report: Report, *, needed: bool) -> list[Finding]:
    """A backend's findings. What is missing of one that isn't needed is a note."""
    return [
        Finding(
            area=area,
            layer=each.layer,
            feature=each.feature,
            status="note" if each.status == MISSING and not needed else each.status,
            detail=each.detail,
            remedy=each.remedy,
        )
        for each in report.findings
    ]


def _configuration(config_path: Path | None, served: Mapping[str, str]) -> list[Finding]:
    from fumehood_server.cli.doctor_access import grant_problems, secret_problems
    from fumehood_server.cli.doctor_callers import caller_findings
    from fumehood_server.cli.doctor_engines import engine_findings
    from fumehood_server.cli.doctor_hooks import hook_findings
    from fumehood_server.cli.doctor_quotas import quota_findings
    from fumehood_server.cli.doctor_webhook import webhook_findings
    from fumehood_server.config import find_config, load_config
    from fumehood_server.plugins.lock import read_lock
    from fumehood_server.plugins.manifest import try_manifest

    try:
        found = find_config(config_path)
        config = load_config(found)
    except ConfigError as error:
        where = f"{error.path}:{error.line}" if error.line else str(error.path)
        detail = f"{where}: {error.problem}"
        return [_configured("file", MISSING, detail, error.hint or "mend it, and run this again")]
    if found is None:
        return [
            _configured(
                "file",
                "note",
                f"no fumehood.toml in {Path.cwd()}: defaults, and no plugins",
                "`fumehood plugin add FOLDER` writes one",
            )
        ]
    count = len(config.plugins)
    findings = [_configured("file", "ok", f"{found}: valid, {count} plugin{'' if count == 1 else 's'}")]
    try:
        lock = read_lock(config.lock_path)
    except ConfigError as error:
        return [*findings, _configured("lock", MISSING, f"{error.path}: {error.problem}", error.hint)]
    for plugin in config.plugins:
        reading = try_manifest(plugin.path)
        if reading.manifest is None:
            problems = "; ".join(str(problem) for problem in reading.problems)
            findings.append(
                _configured(
                    f"plugin {reading.name}",
                    MISSING,
                    problems,
                    f"mend it; `fumehood plugin check {plugin.path}` says more",
                )
            )
        else:
            findings.append(_pinned(reading.manifest, lock, served))
            granted = grant_problems(plugin, reading.manifest.name, config.sandbox)
            findings += [
                _configured(f"grant to {reading.manifest.name}", MISSING, f"{path}: {problem}", remedy)
                for path, (problem, remedy) in granted.items()
            ]
    findings += [
        # A variable may well be set where the sidecar is started, and not here.
        _configured(f"secret {name}", "note" if config.secrets[name].variable else MISSING, problem, remedy)
        for name, (problem, remedy) in secret_problems(config.secrets).items()
    ]
    names = [try_manifest(each.path).name for each in config.plugins]
    more = (
        *caller_findings(config),
        *quota_findings(config, names),
        *hook_findings(config, names),
        *webhook_findings(config),
        *engine_findings(config),
    )
    findings += [_configured(each.feature, each.status, each.detail, each.remedy) for each in more]
    return findings


def _pinned(manifest: Manifest, lock: Lock, served: Mapping[str, str]) -> Finding:
    """Compare a plugin with its pin in the lock. `served`: digests that the sidecar serves, by the plugin's path."""
    from fumehood_server.plugins.loading import add_remedy
    from fumehood_server.plugins.store import folder_digest

    feature, where = f"plugin {manifest.name}", f"{manifest.folder}: {manifest.kind}"
    pinned = lock.plugins.get(manifest.name)
    try:
        digest = folder_digest(manifest.folder)
    except ConfigError as error:
        return _configured(feature, MISSING, f"{where}; {error.problem}", error.hint)
    if pinned is None:
        return _configured(feature, "note", f"{where}; not pinned yet", add_remedy(manifest.folder))
    if pinned.digest != digest and served.get(printable(manifest.folder)) == pinned.digest:
        changed = (
            f"{where}; its files are not the ones that were pinned: what was pinned is served, until the sidecar is "
            "started again, and the edits are not until they are pinned"
        )
        return _configured(feature, "note", changed, add_remedy(manifest.folder))
    if pinned.digest != digest:
        changed = f"{where}; its files are not the ones that were pinned, so that it is not served"
        return _configured(feature, MISSING, changed, add_remedy(manifest.folder))
    return _configured(feature, "ok", f"{where}; as pinned")


def _configured(feature: str, status: str, detail: str, remedy: str = "") -> Finding:
    return Finding(
        area="configuration", layer="configuration", feature=feature, status=status, detail=detail, remedy=remedy
    )


def _sidecar(address: str | None, config_path: Path | None) -> tuple[list[Finding], Mapping[str, str]]:
    """What is said of it, and the digests of the plugins that it serves, by their paths."""
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.doctor_changes import pending_changes
    from fumehood_server.cli.doctor_hooks import served_findings
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.cli.output import plural

    changes: list[Finding] = []
    served: dict[str, str] = {}
    try:
        with SidecarClient(address, connect_timeout_s=1.0) as client:
            names = [each.definition.name for each in client.list_tools(include_unavailable=True)]
            tools = len(client.list_tools())
            status, detail = "ok", f"serving at {client.target}, {tools} of {plural(len(names), 'tool')} can be called"
            remedy = "`fumehood tools --all` says what the others lack" if tools < len(names) else ""
            served = {plugin.path: plugin.digest for plugin in client.list_plugins()}
            changes = [*_rules_of_nothing(names, config_path)]
            changes += [_change(each) for each in pending_changes(client, config_path)]
            changes += [_served(each) for each in served_findings(client)]
    except CommandError as error:
        # Most often doctor is asked before the first start.
        absent = error.code == "UNREACHABLE"
        status, detail, remedy = "note", error.what, "`fumehood serve` starts it" if absent else error.todo
    socket = Finding(area="sidecar", layer="sidecar", feature="socket", status=status, detail=detail, remedy=remedy)
    return [socket, *changes], served


def _rules_of_nothing(names: Sequence[str], config_path: Path | None) -> Iterator[Finding]:
    from fumehood_server.config import find_config, load_config
    from fumehood_server.policy.unknown_tools import unknown_tools

    try:
        rules = load_config(find_config(config_path)).rules
    except ConfigError:  # which is a finding of its own
        return
    for each in unknown_tools(rules, names):
        yield _configured("rule", "note", each, "mend `tools` of it: a name that nothing has restricts nothing")


def _served(found: CallerFinding) -> Finding:
    return Finding(
        area="sidecar",
        layer=found.feature,
        feature="hook",
        status=found.status,
        detail=found.detail,
        remedy=found.remedy,
    )


def _change(change: Change) -> Finding:
    return Finding(
        area="sidecar",
        layer=change.name,
        feature="change",
        status="note",
        detail=change.detail,
        remedy=change.remedy,
    )
