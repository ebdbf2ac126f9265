"""What each tool's process may touch: one `WorkerSpec` for each combination that a plugin's tools use."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol

from fumehood_sandbox import Level, Policy, PythonModule, authorities_runtime

from fumehood_server.config.config import LimitsConfig, SandboxConfig
from fumehood_server.model.plugin import SPARE_FORKS, Grants, Kind, WorkerSpec
from fumehood_server.model.tool import DeclaredLimits, Isolation
from fumehood_server.plugins.launch.program import BuiltProgram
from fumehood_server.plugins.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What the sidecar does for the calls of one tool. One process never serves two tools that differ in it."""

    secrets: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    relay: bool = False
    """Whether programs that only know HTTP_PROXY get one."""


NOTHING = Reach()


class Recognition(Protocol):
    """What a plugin's processes have to declare (`catalog.recognition`)."""

    @property
    def key(self) -> str:
        """Differs where the definitions do."""

    async def __call__(self, sent: Sequence[bytes]) -> str:
        """See `Recognise`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecMaker:
    """Makes the specs of one plugin. What tools have in common they share workers by."""

    manifest: Manifest
    digest: str
    built: BuiltProgram
    grants: Grants
    limits: LimitsConfig
    sandbox: SandboxConfig
    max_workers: int
    recognition: Recognition | None = None
    """None for kinds whose definitions are the manifest's, and while they are learnt."""
    _made: dict[tuple[Level, DeclaredLimits, Reach, Isolation], WorkerSpec] = field(default_factory=dict)

    def spec(
        self,
        level: Level,
        declared: DeclaredLimits,
        reach: Reach = NOTHING,
        isolation: Isolation = Isolation.PROCESS,
    ) -> WorkerSpec:
        """The spec for a tool of this level. A process gets what its level may use of the grants, and nothing more."""
        wanted = (level, declared, reach, isolation)
        made = self._made.get(wanted)
        if made is None:
            made = self._made[wanted] = self._make(level, declared, reach, isolation)
        return made

    def describing(self) -> WorkerSpec:
        """The spec to learn the definitions with: level `none`, no grant, the default limits."""
        return self.spec(Level.NONE, DeclaredLimits())

    def _make(self, level: Level, declared: DeclaredLimits, reach: Reach, isolation: Isolation) -> WorkerSpec:
        limits, own = self.limits.merge(declared)
        # A process outlives its calls, so what holds for one call is the sidecar's to watch (worker.limit_watch). It
        # replaces the process that has used as much as one call may, when each call there may still use as much.
        # Where it has but one, the watch ends that in order; the kernel's own limit is for what would escape it.
        one_call = isolation is Isolation.CALL
        cpu_s = limits.cpu_s + 1 if one_call else limits.cpu_s * (1 + self.manifest.concurrency)
        policy = Policy(
            level=level,
            runtime=(*self.built.runtime, *authorities_runtime()) if reach.relay else self.built.runtime,
            read=self.grants.read if level.allows(Level.READ) else (),
            write=self.grants.write if level.allows(Level.WRITE) else (),
            limits=replace(limits, cpu_s=cpu_s),
            environment=self.built.environment,
            working_directory=self.built.working_directory,
            identity=self.manifest.name,
            cgroups=self.sandbox.cgroups,
            minimum=self.sandbox.minimum,
            relay=reach.relay,
        )
        program = self.built.program
        forks = one_call and self.manifest.kind is Kind.PYTHON and not reach.relay
        if forks and isinstance(program, PythonModule):
            program = replace(program, forks=self.manifest.concurrency + SPARE_FORKS)
        hosts = reach.hosts if level.allows(Level.READ) else ()
        deny_hosts = self.grants.deny_hosts if hosts else ()
        fields = {
            "plugin": self.manifest.name,
            "plugin_digest": self.digest,
            "policy": policy.digest(),
            "program": [type(program).__name__, asdict(program)],
            "isolation": isolation.value,
            "own_limits": asdict(own),
            "cpu_s": limits.cpu_s,
            "max_workers": self.max_workers,
            "max_concurrent_calls": self.manifest.concurrency,
            "secrets": reach.secrets,
            "hosts": hosts,
            "deny_hosts": deny_hosts,
            "definitions": self.recognition.key if self.recognition else "",
        }
        return WorkerSpec(
            key="sha256:" + hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest(),
            plugin=self.manifest.name,
            plugin_digest=self.digest,
            policy=policy,
            program=program,
            isolation=isolation,
            describes=self.manifest.kind is Kind.PYTHON,
            output_bytes=own.output_bytes,
            cpu_s=limits.cpu_s,
            log_bytes_per_second=own.log_bytes_per_second,
            max_workers=self.max_workers,
            max_concurrent_calls=self.manifest.concurrency,
            secrets=reach.secrets,
            hosts=hosts,
            deny_hosts=deny_hosts,
            recognise=self.recognition,
        )
