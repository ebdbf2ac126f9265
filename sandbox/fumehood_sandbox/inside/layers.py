"""The layers that a process takes on by itself: Landlock, limits, identity, capabilities, filter, descriptors.

One function a step. Each reports what it found after it was done, and raises `StepError` if it can't be done.
"""

import os
import sys

from fumehood_sandbox.inside.report import report
from fumehood_sandbox.kernel.constants import (
    CAPABILITY_SETS,
    CAPABILITY_VERSION_3,
    LANDLOCK_ACCESS_FS_EXECUTE,
    LANDLOCK_ACCESS_FS_IOCTL_DEV,
    LANDLOCK_ACCESS_FS_READ_FILE,
    LANDLOCK_ACCESS_FS_TRUNCATE,
    LANDLOCK_ACCESS_FS_WRITE_FILE,
    LANDLOCK_ACCESS_NET_CONNECT_TCP,
    LANDLOCK_RULE_NET_PORT,
    LANDLOCK_RULE_PATH_BENEATH,
    LAST_DESCRIPTOR,
    LAST_POSSIBLE_CAPABILITY,
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_CLEAR_ALL,
    PR_CAPBSET_DROP,
    PR_CAPBSET_READ,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_SECCOMP,
    S_IFDIR,
    S_IFMT,
    SECCOMP_MODE_FILTER,
    SOCK_FILTER_BYTES,
    SYS_LANDLOCK_ADD_RULE,
    SYS_LANDLOCK_CREATE_RULESET,
    SYS_LANDLOCK_RESTRICT_SELF,
)
from fumehood_sandbox.kernel.libc import StepError, call, function, pinned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_OOM_SCORE, _MOST_OOM_SCORE = 500, 1000
"""Half of the machine's memory, as the kernel reckons it: what a plugin holds counts for so much more."""
_LANDLOCK_ON_FILES = (
    LANDLOCK_ACCESS_FS_EXECUTE
    | LANDLOCK_ACCESS_FS_WRITE_FILE
    | LANDLOCK_ACCESS_FS_READ_FILE
    | LANDLOCK_ACCESS_FS_TRUNCATE
    | LANDLOCK_ACCESS_FS_IOCTL_DEV
)
"""All the access that a rule can allow of a file, in place of a folder."""


def status_of(process: str) -> "dict[str, str]":
    """The fields of /proc/PROCESS/status."""
    with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as stream:  # noqa: PTH123 - an import
        return dict(line.split(":\t", 1) for line in stream if ":\t" in line)


def make_ruleset(landlock: "dict[str, Any]") -> int:
    """Make the Landlock rule set while root's identity can still reach what it allows. Returns its descriptor.

    A rule's path may be a number: a descriptor of what is meant.
    """
    attributes: bytes = landlock["attributes"]
    create = (SYS_LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    ruleset = call("landlock", "syscall", *create, what="create the rule set")
    for path, access in landlock["rules"]:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC) if isinstance(path, str) else path
            is_folder = os.fstat(descriptor).st_mode & S_IFMT == S_IFDIR
        except OSError as error:
            raise StepError("landlock", f"open: {error.strerror}", str(path), error.errno or 0) from error
        allowed = access if is_folder else access & _LANDLOCK_ON_FILES
        # struct landlock_path_beneath_attr is packed: 8 bytes of access, 4 of descriptor.
        rule = allowed.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder)
        add = (SYS_LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0)
        call("landlock", "syscall", *add, what="add a rule", path=str(path))
        os.close(descriptor)  # there may be more rules than a process may have descriptors
    return ruleset


def allow_connecting(ruleset: int, attributes: bytes, port: int) -> None:
    """Where Landlock knows of TCP (ABI 4: the attributes then have a second field), allow this port alone."""
    if len(attributes) > 8:  # noqa: PLR2004 - the first field's bytes
        # struct landlock_net_port_attr: 8 bytes of access, 8 of port, both in the host's order.
        rule = LANDLOCK_ACCESS_NET_CONNECT_TCP.to_bytes(8, sys.byteorder) + port.to_bytes(8, sys.byteorder)
        add = (SYS_LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_NET_PORT, rule, 0)
        call("landlock", "syscall", *add, what="allow the relay's port")


def limit(status: int, rlimits: "list[tuple[str, int]]") -> None:
    """Set the limits, soft and hard, none above what this process may have."""
    import resource  # noqa: PLC0415 - within `main`'s try block

    for name, value in rlimits:
        number = getattr(resource, name)
        _, ceiling = resource.getrlimit(number)
        wanted = value if ceiling == resource.RLIM_INFINITY else min(value, ceiling)
        try:
            resource.setrlimit(number, (wanted, wanted))
        except (OSError, ValueError) as error:
            raise StepError("rlimits", f"{name}={wanted}: {error}", "", getattr(error, "errno", 0) or 0) from error
    in_force = f"oom_score_adj={_be_killed_first()}, " + ", ".join(
        f"{name[7:].lower()}={resource.getrlimit(getattr(resource, name))[1]}" for name, _ in rlimits
    )
    report(status, "layer", "rlimits", in_force)


def _be_killed_first() -> int:
    """Have the kernel, when the machine has no memory left, end this process and its descendants before the launcher.

    Anybody may raise his own score (proc_pid_oom_score_adj(5)); Landlock lets nobody write to /proc afterwards.
    """
    path = "/proc/self/oom_score_adj"
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        score = min(int(os.read(fd, 16)) + _OOM_SCORE, _MOST_OOM_SCORE)
        os.write(fd, str(score).encode())
    except OSError as error:
        raise StepError("rlimits", f"raise the score: {error.strerror}", path, error.errno or 0) from error
    finally:
        os.close(fd)
    return score


def empty_bounding_set() -> None:
    """Only possible while CAP_SETPCAP is still held, so before the user id changes."""
    prctl = function("prctl")
    for capability in range(LAST_POSSIBLE_CAPABILITY + 1):
        if prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1:
            call("capabilities", "prctl", PR_CAPBSET_DROP, capability, 0, 0, 0, what=f"drop {capability}")


def drop_identity(status: int, identity: "tuple[int, int] | None") -> None:
    """Set no_new_privs and become this user and group, without others; None: stay who this process is."""
    call("identity", "prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, what="no_new_privs")
    if identity is not None:
        user, group = identity
        try:
            os.setgroups([])
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
        except OSError as error:
            raise StepError("identity", f"become {user}:{group}: {error.strerror}", "", error.errno or 0) from error
    users, groups = set(os.getresuid()), set(os.getresgid())
    if 0 in users or 0 in groups:
        raise StepError("identity", f"still root: uids {users}, gids {groups}")
    report(status, "layer", "identity", f"uid {os.getuid()}, gid {os.getgid()}, no root among the ids")


def load_filter(program: bytes, *, what: str) -> None:
    """Load a system-call filter. It can't be taken off, and every descendant has it. Needs no_new_privs."""
    address, held = pinned(program)
    # struct sock_fprog: the count of instructions in 16 bits, padded to a pointer's size, and their address.
    count = (len(program) // SOCK_FILTER_BYTES).to_bytes(2, sys.byteorder)
    structure = count + bytes(6) + address.to_bytes(8, sys.byteorder)
    call("seccomp", "prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, structure, 0, 0, what=what)
    del held


def drop_capabilities(status: int, detail: str = "inheritable, permitted, effective, bounding and ambient") -> None:
    """Empty all sets but the bounding one. `detail` names what is empty by then."""
    call("capabilities", "prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, what="clear the ambient set")
    header = CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4)  # process 0: this one
    call("capabilities", "capset", header, bytes(24), what="clear the sets")
    # Changed ids make a process undumpable, and /proc/self root's. Nothing here is hidden from the program itself.
    call("capabilities", "prctl", PR_SET_DUMPABLE, 1, 0, 0, 0, what="dumpable")
    report(status, "layer", "capabilities", f"{detail} sets cleared")


def restrict_self(status: int, ruleset: int, detail: str) -> None:
    """Enter a Landlock domain of these rules."""
    call("landlock", "syscall", SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, what="restrict")
    report(status, "layer", "landlock", detail)


def close_descriptors(status: int, others: "tuple[int, ...]" = ()) -> None:
    """Close all but 0, 1, 2, these others, and the status pipe, which closes at execve(2)."""
    kept = sorted((status, *others))
    for fd, before in zip(kept, (2, *kept), strict=False):
        os.set_inheritable(fd, False)
        os.closerange(before + 1, fd)
    os.closerange(kept[-1] + 1, LAST_DESCRIPTOR)
    listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    left = set(map(int, os.listdir(listing))) - {0, 1, 2, *kept, listing}  # noqa: PTH208 - pathlib is an import
    os.close(listing)
    left = {descriptor for descriptor in left if _is_open(descriptor)}  # the listing's own duplicate is gone by now
    if left:
        raise StepError("descriptors", f"still open: {sorted(left)}")
    report(status, "layer", "descriptors", "0, 1 and 2" + (", and the one that orders come over" if others else ""))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def check_status(status: int, identity: "tuple[int, int] | None", sets: "tuple[str, ...]" = CAPABILITY_SETS) -> None:
    """Believe the kernel, not the steps: what it says of this process must be what was asked for."""
    found = status_of("self")
    for name in sets:
        if int(found.get(name, "1"), 16):
            raise StepError("capabilities", f"{name} is {found[name].strip()}")
    if found.get("NoNewPrivs", "").strip() != "1":
        raise StepError("capabilities", "no_new_privs is not set")
    if found.get("Seccomp", "").strip() != "2":
        raise StepError("seccomp", "no filter is in force")
    if identity is not None and set(found["Uid"].split()) != {str(identity[0])}:
        raise StepError("identity", f"the kernel says {found['Uid'].split()}")
    report(status, "layer", "seccomp", "filter in force, no_new_privs set")
