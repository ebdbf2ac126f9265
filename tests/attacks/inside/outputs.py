"""What a program could leave behind in a folder that others read."""

from __future__ import annotations

import os
import stat

from tests.attacks.inside.kit import ABSENT, Arena, Pair, attack, outcome, syscall, write_file

_RENAME_WHITEOUT = 4
_AT_FDCWD = -100


@attack("S106", "EPERM")
def leave_a_fifo(arena: Arena) -> Pair:
    return outcome(lambda: os.mkfifo(f"{arena.own}/fifo")), outcome(os.pipe)


@attack("S106", "EPERM")
def leave_a_socket(arena: Arena) -> Pair:
    found = outcome(lambda: os.mknod(f"{arena.own}/socket", 0o666 | stat.S_IFSOCK))
    return found, outcome(lambda: os.mknod(f"{arena.own}/plain", 0o600 | stat.S_IFREG))


@attack("S106", "EPERM")
def leave_a_character_device(arena: Arena) -> Pair:
    found = outcome(lambda: os.mknod(f"{arena.own}/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3)))
    return found, outcome(lambda: write_file("/dev/null"))


@attack("S106", "EPERM")
def leave_a_block_device(arena: Arena) -> Pair:
    found = outcome(lambda: os.mknod(f"{arena.own}/disk", 0o666 | stat.S_IFBLK, os.makedev(8, 0)))
    return found, outcome(lambda: os.mknod(f"{arena.own}/plain2", 0o600))


@attack("S106", "EPERM")
def leave_a_device_by_whiteout(arena: Arena) -> Pair:
    """A rename that puts device 0:0 in the old name's place, as overlay file systems do."""
    write_file(f"{arena.own}/whiteout")

    def rename(flags: int) -> str:
        old, new = f"{arena.own}/whiteout".encode(), f"{arena.own}/whitened".encode()
        return syscall("renameat2", _AT_FDCWD, old, _AT_FDCWD, new, flags)

    return rename(_RENAME_WHITEOUT), rename(0)


def _set_id(name: str, mode: int) -> None:
    """One attack for each call that takes a mode, and each of the two bits."""

    @attack("S107", "EPERM", name=f"{name}_{mode:o}")
    def attempt(arena: Arena) -> Pair:
        path = f"{arena.own}/{name}{mode:o}"
        if name in {"chmod", "fchmod", "fchmodat2", "fchmodat"}:
            write_file(path)
        found, control = _with_mode(name, path, mode), _with_mode(name, path, 0o755)
        # fchmodat2 came with Linux 6.6.
        return (ABSENT if control == "ENOSYS" else found), control


def _with_mode(name: str, path: str, mode: int) -> str:  # noqa: PLR0911 - one return a call
    raw = path.encode()
    creating = os.O_CREAT | os.O_WRONLY
    if name == "chmod":
        return outcome(lambda: os.chmod(path, mode))
    if name == "fchmod":
        fd = os.open(path, os.O_RDONLY)
        return outcome(lambda: os.fchmod(fd, mode))
    if name == "fchmodat":
        folder = os.open(os.path.dirname(path), os.O_RDONLY)
        return outcome(lambda: os.chmod(os.path.basename(path), mode, dir_fd=folder))
    if name == "open":
        return outcome(lambda: os.open(path, creating, mode))
    if name == "unnamed":
        return outcome(lambda: os.open(os.path.dirname(path), os.O_TMPFILE | os.O_WRONLY, mode))
    if name == "mknod":
        return outcome(lambda: os.mknod(path, mode | stat.S_IFREG))
    # The number in a register with high bits set: the kernel reads the low half.
    return syscall("fchmodat2", _AT_FDCWD, raw, mode | 1 << 40, 0)


for _call in ("chmod", "fchmod", "fchmodat", "fchmodat2", "open", "unnamed", "mknod"):
    for _bits in (0o4755, 0o2755):
        _set_id(_call, _bits)


@attack("S107", "EPERM", "EINVAL", "EACCES")
def give_a_file_away(arena: Arena) -> Pair:
    """Owned by root with capabilities, it would be as good as a set-user-id file."""
    path = f"{arena.own}/given"
    write_file(path)
    found = {outcome(lambda: os.chown(path, 0, 0)), outcome(lambda: os.chown(path, 1, 1))}
    return found.pop() if len(found) == 1 else str(found), outcome(lambda: os.chown(path, os.getuid(), os.getgid()))


@attack("S107", "EPERM", "EINVAL", "EACCES", "ENOTSUP")
def give_a_file_capabilities(arena: Arena) -> Pair:
    """cap_net_raw+ep, as setcap writes it."""
    path = f"{arena.own}/capable"
    write_file(path)
    value = bytes.fromhex("0100000200200000000000000000000000000000")
    found = outcome(lambda: os.setxattr(path, "security.capability", value))
    return found, outcome(lambda: os.chmod(path, 0o700))
