"""The file system's layout: mounting, by the old calls and the new, other roots, files by handle."""

from __future__ import annotations

import ctypes
import os

from tests.attacks.inside.kit import Arena, Pair, attack, outcome, syscall

_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_MS_BIND, _MS_REMOUNT, _MS_MOVE = 4096, 32, 8192
_OPEN_TREE_CLONE = 1
_LEAST = bytes(64)


def _listing(arena: Arena) -> str:
    return outcome(lambda: os.listdir(arena.own))


def _mounting(name: str, *arguments: object, call: str) -> None:
    @attack("S303", "EPERM", name=name)
    def tried(arena: Arena) -> Pair:
        return syscall(call, *arguments), _listing(arena)


_mounting("bind", b"/proc\0", b"/tmp\0", 0, _MS_BIND, 0, call="mount")
_mounting("remount_writable", b"none\0", b"/\0", 0, _MS_BIND | _MS_REMOUNT, 0, call="mount")
_mounting("new_proc", b"proc\0", b"/tmp\0", b"proc\0", 0, 0, call="mount")
_mounting("new_tmpfs", b"tmpfs\0", b"/tmp\0", b"tmpfs\0", 0, 0, call="mount")
_mounting("move", b"/tmp\0", b"/dev/shm\0", 0, _MS_MOVE, 0, call="mount")
_mounting("unmount", b"/tmp\0", 0, call="umount2")
_mounting("unmount_lazily", b"/proc/sys\0", 2, call="umount2")
_mounting("unmount_root", b"/\0", 2, call="umount2")
_mounting("fsopen", b"tmpfs\0", 0, call="fsopen")
_mounting("fsconfig", 0, 6, 0, 0, 0, call="fsconfig")
_mounting("fsmount", 0, 0, 0, call="fsmount")
_mounting("fspick", _AT_FDCWD, b"/tmp\0", 0, call="fspick")
_mounting("open_tree", _AT_FDCWD, b"/\0", _OPEN_TREE_CLONE, call="open_tree")
_mounting("open_tree_without_clone", _AT_FDCWD, b"/\0", 0, call="open_tree")
_mounting("open_tree_attr", _AT_FDCWD, b"/\0", _OPEN_TREE_CLONE, _LEAST, 32, call="open_tree_attr")
_mounting("move_mount", _AT_FDCWD, b"/tmp\0", _AT_FDCWD, b"/dev/shm\0", 0, call="move_mount")
_mounting("mount_setattr", _AT_FDCWD, b"/\0", 0, _LEAST, 32, call="mount_setattr")
_mounting("pivot_root", b"/tmp\0", b"/tmp\0", call="pivot_root")
_mounting("chroot", b"/tmp\0", call="chroot")
_mounting("chroot_to_proc", b"/proc/1/root\0", call="chroot")
_mounting("quota_on", 0x80000200, b"/dev/vda\0", 0, b"/tmp/quota\0", call="quotactl")
_mounting("quota_by_descriptor", 0, 0x80000700, 0, 0, call="quotactl_fd")


@attack("S304", "EPERM")
def handle_of_a_file(arena: Arena) -> Pair:
    """The first half of going round every mount: the kernel's own number for a file."""
    handle = (ctypes.c_uint32 * 34)(128)
    mount = ctypes.c_int()
    made = syscall("name_to_handle_at", _AT_FDCWD, b"/tmp\0", ctypes.byref(handle), ctypes.byref(mount), 0)
    return made, _listing(arena)


@attack("S304", "EPERM")
def open_by_handle(arena: Arena) -> Pair:
    """The second half: inode 2 is the root of most file systems."""
    handle = (ctypes.c_uint32 * 4)(8, 1, 2, 0)
    fd = os.open(arena.own, os.O_RDONLY)
    return syscall("open_by_handle_at", fd, ctypes.byref(handle), os.O_RDONLY), outcome(lambda: os.stat(fd))


@attack("S304", "ENOSYS")
def resolve_without_the_filters_sight(arena: Arena) -> Pair:
    """openat2: flags and mode lie in memory. It doesn't exist, and libc takes openat."""
    how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    path = f"{arena.own}/openat2\0".encode()
    return syscall("openat2", _AT_FDCWD, path, ctypes.byref(how), 24), outcome(
        lambda: os.open(f"{arena.own}/openat", os.O_CREAT | os.O_WRONLY)
    )


@attack("S305", "EPERM")
def watch_a_whole_file_system(arena: Arena) -> Pair:
    """fanotify sees every process's accesses; inotify those to what is granted and no more (docs/sandbox.md)."""
    return syscall("fanotify_init", 0x200, 0), outcome(lambda: os.listdir(arena.own))


@attack("S305", "EPERM")
def mark_a_file_system(arena: Arena) -> Pair:
    return syscall("fanotify_mark", 0, 0x100, 0x20, _AT_FDCWD, b"/\0"), outcome(lambda: os.listdir(arena.own))


@attack("S305", "ENOENT", "EACCES")
def watch_what_was_not_granted(arena: Arena) -> Pair:
    return _watch(arena.outside), _watch(arena.own)


def _watch(path: str) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    watching = libc.inotify_init1(0)
    assert watching >= 0
    return syscall("inotify_add_watch", watching, path.encode() + b"\0", 0x20)
