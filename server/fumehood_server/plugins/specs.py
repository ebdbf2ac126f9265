"""Builds worker specs: one sandbox policy and program for each combination of level, limits and grants."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol

from fumehood_sandbox import Level, Mount, Policy, PythonModule, authorities_runtime, isolation_problem

from fumehood_server.config.config import LimitsConfig, SandboxConfig
from fumehood_server.model.plugin import PREWARMED_FORKS, Grants, Kind, WorkerSpec
from fumehood_server.model.tool import DeclaredLimits, Isolation
from fumehood_server.plugins import launch
from fumehood_server.plugins.launch.program import BuiltProgram, RemoteLaunch, build
from fumehood_server.plugins.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What one tool is granted beside paths. Tools that differ in it never share a process."""

    secrets: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    relay: bool = False
    """Whether the sandbox has an HTTP proxy, for programs that only know HTTP_PROXY."""


NOTHING = Reach()
_TOP_PARTS = 2
"""Parts of a path such as /etc. Those are the system's."""
_EMPTY_REPOSITORY = str(Path(launch.__file__).with_name("empty_repository"))
"""A bare Git repository without commits (gitrepository-layout(5))."""


class Verifier(Protocol):
    """Verifies a process's definitions (`definition_verifier`)."""

    @property
    def key(self) -> str:
        """Differs where the accepted definitions do."""

    async def __call__(self, sent: Sequence[bytes]) -> str:
        """See `Recognise`."""


def build_program(manifest: Manifest, folder: Path, packages: Path | None) -> BuiltProgram:
    """How the plugin of a manifest is run in `folder`; see `build`."""
    remote = manifest.remote
    launch = (
        None if remote is None else RemoteLaunch(remote.url, remote.headers, remote.secret_headers, remote.authorities)
    )
    return build(
        manifest.kind,
        folder,
        entrypoint=manifest.entrypoint,
        command=manifest.command,
        binary=manifest.binary,
        binaries=manifest.binaries,
        threads=manifest.threads,
        packages=packages,
        environment=manifest.environment,
        secrets=manifest.secrets,
        remote=launch,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecMaker:
    """Builds and caches the specs of one plugin. Tools with equal specs share workers."""

    manifest: Manifest
    digest: str
    built: BuiltProgram
    grants: Grants
    limits: LimitsConfig
    sandbox: SandboxConfig
    max_workers: int
    verifier: Verifier | None = None
    """None for kinds whose definitions are in the manifest, and while a plugin is described."""
    all_levels: bool = False
    """Whether one process serves the tools of every level."""
    _made: dict[tuple[Level, DeclaredLimits, Reach, Isolation], WorkerSpec] = field(default_factory=dict)

    def spec(
        self,
        level: Level,
        declared: DeclaredLimits,
        reach: Reach = NOTHING,
        isolation: Isolation = Isolation.PROCESS,
    ) -> WorkerSpec:
        """The spec for a tool of this level, with those grants that the level may use."""
        wanted = (level, declared, reach, isolation)
        made = self._made.get(wanted)
        if made is None:
            made = self._made[wanted] = self._make(level, declared, reach, isolation)
        return made

    def listing_spec(self, secrets: Sequence[str]) -> WorkerSpec:
        """The spec to ask an MCP server on stdio for its tools with: as a tool of the highest level granted is run.

        It has those of `secrets` that it names.
        """
        level = self.grants.max_side_effects
        reach = Reach(
            secrets=tuple(sorted({secret for _, secret in self.manifest.secrets} & set(secrets))),
            hosts=self.grants.hosts,
            private=self.grants.private,
            relay=level is Level.EXTERNAL and bool(self.grants.hosts),
        )
        return self.spec(level, self.manifest.limits, reach)

    def describing_spec(self, secrets: Sequence[str] = ()) -> WorkerSpec:
        """The spec to describe a plugin with: level `none`, no grant, the default limits.

        A server over HTTP can't be asked without: level `external`, its own host, and those of `secrets` that it names.

        As a zygote where this machine can fork one, so that its import is checked for forks in the same start.
        """
        manifest = self.manifest
        if manifest.remote is not None:
            named_secrets = {secret for _, secret, _ in manifest.remote.secret_headers}
            reach = Reach(
                secrets=tuple(sorted(named_secrets & set(secrets))),
                hosts=(manifest.remote.host,),
                private=self.grants.private,
                relay=True,
            )
            return self.spec(Level.EXTERNAL, manifest.limits, reach)
        if manifest.kind is not Kind.MCP:
            return self.spec(Level.NONE, DeclaredLimits(), isolation=manifest.kind.default_isolation)
        # Servers that are named folders in their command don't start without them: those are shown empty.
        named = _empty_folders([each for each in manifest.command[1:] if _is_data_folder(each)])
        built = replace(self.built, runtime=(*self.built.runtime, *named))
        return replace(self, built=built, _made={}).spec(Level.NONE, manifest.limits)

    def _make(self, level: Level, declared: DeclaredLimits, reach: Reach, isolation: Isolation) -> WorkerSpec:
        limits, own = self.limits.merge(declared)
        # RLIMIT_CPU counts over a process's life, and a process serves many calls: the sidecar watches the time of each
        # call (workers.limits.limit_watch) and replaces a process that has used one call's worth. The rlimit is a
        # backstop for what escapes that: one call's limit for each call that may run at a time, and one for the past.
        one_call = isolation is Isolation.CALL
        is_server = self.manifest.kind is Kind.MCP
        # What one tool of a server writes another may read: their grants are one plugin's, and differ by level alone.
        shown = (
            (*self.grants.read, *self.grants.write) if is_server and not level.allows(Level.WRITE) else self.grants.read
        )
        cpu_s = limits.cpu_s + 1 if one_call else limits.cpu_s * (1 + self.manifest.concurrency)
        policy = Policy(
            level=level,
            runtime=(*self.built.runtime, *authorities_runtime()) if reach.relay else self.built.runtime,
            read=shown if level.allows(Level.READ) else (),
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
        # Where a zygote can't be had, and where the relay has to be in each sandbox anew, each call is launched anew.
        # A server's process can't be forked, either.
        forks = one_call and not is_server and not reach.relay
        if forks and isinstance(program, PythonModule) and isolation_problem() is None:
            program = replace(program, forks=self.manifest.concurrency + PREWARMED_FORKS)
        hosts = reach.hosts if level.allows(Level.READ) else ()
        deny_hosts = self.grants.deny_hosts if hosts else ()
        private = reach.private if hosts else ()
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
            "all_levels": self.all_levels,
            "secrets": reach.secrets,
            "hosts": hosts,
            "deny_hosts": deny_hosts,
            "private": private,
            "engine": self.grants.engine,
            "definitions": self.verifier.key if self.verifier else "",
        }
        return WorkerSpec(
            key="sha256:" + hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest(),
            plugin=self.manifest.name,
            plugin_digest=self.digest,
            policy=policy,
            program=program,
            isolation=isolation,
            output_bytes=own.output_bytes,
            cpu_s=limits.cpu_s,
            log_bytes_per_second=own.log_bytes_per_second,
            max_workers=self.max_workers,
            max_concurrent_calls=self.manifest.concurrency,
            secrets=reach.secrets,
            hands_secrets=is_server,
            all_levels=self.all_levels,
            hosts=hosts,
            deny_hosts=deny_hosts,
            private=private,
            engine=self.grants.engine,
            recognise=self.verifier,
        )


def _is_data_folder(text: str) -> bool:
    """Whether an argument names a folder of this machine that holds no part of a program."""
    path = Path(text)
    return path.is_absolute() and not path.is_relative_to("/usr") and len(path.parts) > _TOP_PARTS and path.is_dir()


def _empty_folders(named: Sequence[str]) -> Iterator[Mount]:
    """An empty folder in the place of each; a repository without commits for one of Git's in which none lies."""
    paths = sorted({posixpath.normpath(each) for each in named})
    for path in paths:
        holds_another = any(each.startswith(path + "/") for each in paths)
        is_repository = (Path(path) / ".git").exists() and not holds_another
        yield Mount(_EMPTY_REPOSITORY if is_repository else "", path)
