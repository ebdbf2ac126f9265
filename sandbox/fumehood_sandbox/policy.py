"""The policy: what a process may touch, as the one input of `launch`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field

from fumehood_sandbox.backend import Backend
from fumehood_sandbox.level import Level
from fumehood_sandbox.limits import Limits


@dataclass(frozen=True, slots=True)
class Mount:
    """A path of this machine that appears, read-only, at a path of the sandbox."""

    source: str
    """Absolute path outside. A file or a folder; it must exist when the sandbox is launched.

    Empty: no path; an empty folder lies at the target, and hides what an earlier mount shows there.
    """
    target: str
    """Absolute path inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What one process may touch. Whatever is not named here does not exist inside.

    A policy is checked when it is launched, not when it is made: `launch` raises `PolicyError` for one that contradicts
    itself and `SandboxUnavailableError` for one that this machine can't enforce.
    """

    level: Level
    """What the paths and hosts below may be used for. Grants above the level are refused, not dropped."""
    runtime: tuple[Mount, ...] = ()
    """The program's own files: interpreter, libraries, code. Read-only and executable.

    Later mounts may lie inside earlier ones.
    """
    read: tuple[str, ...] = ()
    """Absolute paths granted for reading, without symbolic links on the way.

    They lie at the same place inside. Nothing beneath them is executable.
    """
    write: tuple[str, ...] = ()
    """Absolute paths of folders granted for reading and writing, without symbolic links; same place inside.

    No other grant may lie beneath one. Nothing beneath them is executable, but for `runs_written`.
    """
    runs_written: bool = False
    """Whether what lies in the folders of `write` may be executed: for builds, which run what they make."""
    limits: Limits = field(default_factory=Limits)
    """Resource limits."""
    environment: tuple[tuple[str, str], ...] = ()
    """The whole environment, name and value. Nothing is inherited."""
    working_directory: str = "/tmp"  # noqa: S108 - the sandbox's own, a private tmpfs
    """Where the program starts, as a path inside."""
    identity: str = ""
    """Whose process it is, such as a plugin's name.

    Where the launcher is root, processes of different identities get different user ids.
    """
    minimum: Backend = Backend.NAMESPACES
    """The weakest backend that the operator accepts.

    It is used where no stronger one can be had, and the receipt names each layer that is weaker for it.
    """

    cgroups: bool = True
    """Whether a cgroup may bound and measure it.

    Where none can, or may, limits of each process stand in, and the receipt calls them weaker.
    """

    relay: bool = False
    """Whether programs that only know HTTP_PROXY may connect to a relay, at level `external` alone.

    They then have TCP sockets in a network namespace of nothing but a loopback device, and `SandboxedProcess.relay` is
    the one socket there that listens: whoever holds it decides what goes out.
    """

    def canonical_json(self) -> bytes:
        """The policy as JSON with sorted keys, in ASCII. Equal policies have equal texts on every machine.

        The environment is a list of names and of the SHA-256 of each value: a value may be nobody else's business.
        """
        fields = asdict(self)
        fields["environment"] = [
            (name, hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest())
            for name, value in self.environment
        ]
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()

    def digest(self) -> str:
        """SHA-256 of `canonical_json`, as "sha256:" and 64 hex digits."""
        return "sha256:" + hashlib.sha256(self.canonical_json()).hexdigest()
