"""Reading and writing what was not granted."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tests.attacks.inside.kit import DONE, READING, Arena, Pair, attack, outcome, read_file, syscall, write_file

Attempts = Mapping[str, Callable[[], object]]
ABSENT = ("ENOENT",)
CAPABILITY = bytes.fromhex("0100000200200000000000000000000000000000")
"""cap_net_raw+ep, as setcap writes it."""
CLOSED = ("EROFS", "EACCES", "EPERM", "ENOENT")


@attack("S101", *ABSENT)
def read_beside_the_grants(arena: Arena) -> Pair:
    return outcome(lambda: read_file(f"{arena.outside}/canary")), _own_file(arena)


@attack("S101", *CLOSED)
def write_beside_the_grants(arena: Arena) -> Pair:
    return outcome(lambda: write_file(f"{arena.outside}/planted")), _own_file(arena)


@attack("S101", *ABSENT)
def read_ssh_keys(arena: Arena) -> Pair:
    return outcome(lambda: read_file(f"{arena.home}/.ssh/id")), _own_file(arena)


@attack("S101", *ABSENT)
def list_home_folders(arena: Arena) -> Pair:
    for folder in ("/root/.ssh", "/home", "/var", "/srv", "/mnt", "/media", "/boot", "/sys", "/run/user"):
        if (found := outcome(lambda folder=folder: os.listdir(folder))) in ABSENT:
            continue
        if set(os.listdir(folder)) != _on_the_way(arena, folder):
            return f"{folder}: {found}: {os.listdir(folder)}", ""
    return "ENOENT", outcome(lambda: os.listdir("/proc"))


@attack("S101", *ABSENT)
def read_shadow(_: Arena) -> Pair:
    return outcome(lambda: read_file("/etc/shadow")), outcome(lambda: read_file("/proc/version"))


@attack("S101", *ABSENT)
def read_the_machines_identity(_: Arena) -> Pair:
    for path in ("/etc/machine-id", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/ssh", "/etc/sudoers"):
        if (found := outcome(lambda path=path: os.stat(path))) not in ABSENT:
            return f"{path}: {found}", ""
    return "ENOENT", outcome(lambda: os.stat("/proc/version"))


@attack("S101", *ABSENT)
def read_the_launchers_environment_of_python(arena: Arena) -> Pair:
    """A venv beside the program's interpreter: its packages are not the program's."""
    return outcome(lambda: os.listdir(f"{arena.home}/venv")), outcome(lambda: os.stat(os.__file__))


@attack("S101", "ENOENT")
def reach_sockets_and_buses_by_path(_: Arena) -> Pair:
    for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/dbus", "/run/systemd", "/dev/log", "/tmp/.X11-unix"):
        if (found := outcome(lambda path=path: os.stat(path))) != "ENOENT":
            return f"{path}: {found}", ""
    return "ENOENT", outcome(lambda: os.stat("/run"))


@attack("S101", *CLOSED)
def write_to_the_root(arena: Arena) -> Pair:
    for folder in ("/", "/etc", "/dev", "/run", "/usr", "/lib", "/opt", "/var"):
        found = outcome(lambda folder=folder: write_file(f"{folder}/planted"))
        if found not in CLOSED:
            return f"{folder}: {found}", ""
    return "EROFS", outcome(lambda: write_file(f"{arena.own}/made"))


@attack("S102", *CLOSED, levels=READING)
def change_what_is_granted_for_reading(arena: Arena) -> Pair:
    file = f"{arena.read}/file"
    attempts = {
        "append": lambda: os.open(file, os.O_WRONLY | os.O_APPEND),
        "truncate": lambda: os.truncate(file, 0),
        "create": lambda: write_file(f"{arena.read}/planted"),
        "folder": lambda: os.mkdir(f"{arena.read}/folder"),
        "remove": lambda: os.unlink(file),
        "rename": lambda: os.rename(file, f"{arena.read}/moved"),
        "symlink": lambda: os.symlink("/etc", f"{arena.read}/link"),
        "link": lambda: os.link(file, f"{arena.read}/other"),
        "unnamed": lambda: os.open(arena.read, os.O_TMPFILE | os.O_WRONLY),
    }
    return _first_not_in(CLOSED, attempts), outcome(lambda: read_file(file))


@attack("S102", *CLOSED, levels=READING)
def change_the_attributes_of_what_is_granted_for_reading(arena: Arena) -> Pair:
    """Landlock has no word for these: the mount alone denies them."""
    file = f"{arena.read}/file"
    return _first_not_in((*CLOSED, "ENOTSUP"), _attributes(file)), outcome(lambda: os.stat(file))


@attack("S102", *CLOSED)
def change_the_attributes_of_the_runtime(arena: Arena) -> Pair:
    own = f"{arena.own}/attributes"
    write_file(own)
    return _first_not_in(CLOSED, _attributes(os.__file__)), outcome(lambda: os.chmod(own, 0o600))


@attack("S102", *CLOSED)
def change_the_attributes_of_devices_and_proc(arena: Arena) -> Pair:
    own = f"{arena.own}/attributes"
    write_file(own)
    attempts: dict[str, Callable[[], object]] = {}
    for path in ("/dev/null", "/dev/zero", "/proc", "/proc/self", "/dev", "/"):
        attempts |= {f"{path} {name}": action for name, action in _attributes(path).items() if "now" not in name}
    # EINVAL: a user that this namespace has no number for.
    return _first_not_in((*CLOSED, "ENOTSUP", "EINVAL"), attempts), outcome(lambda: os.utime(own, (1, 1)))


@attack("S102", *CLOSED)
def change_the_runtime(arena: Arena) -> Pair:
    """The interpreter, its library, the code of this very program, and bytecode that the next start would load."""
    folder = os.path.dirname(os.__file__)
    code = os.path.dirname(os.path.abspath(sys.modules[arena.__module__].__file__ or ""))
    attempts = {
        "interpreter": lambda: os.open(os.path.realpath(sys.executable), os.O_WRONLY),
        "library": lambda: os.open(os.__file__, os.O_WRONLY),
        "module": lambda: write_file(f"{folder}/planted.py"),
        "own code": lambda: os.open(f"{code}/kit.py", os.O_WRONLY),
        "bytecode folder": lambda: os.makedirs(f"{code}/__pycache__", exist_ok=False),
        "bytecode": lambda: write_file(f"{code}/__pycache__/kit.planted.pyc"),
        "preload": lambda: write_file("/etc/ld.so.preload"),
    }
    found = _first_not_in((*CLOSED, "EEXIST", "ETXTBSY"), attempts)
    return found, outcome(lambda: read_file(os.__file__))


@attack("S102", "EACCES")
def map_the_runtime_for_writing(arena: Arena) -> Pair:
    """A shared mapping would be a way of writing without a descriptor that may; nor can one be turned into it."""
    fd = os.open(os.__file__, os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    place = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    turned = libc.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(4096), mmap.PROT_READ | mmap.PROT_WRITE)
    found = outcome(lambda: mmap.mmap(fd, 4096, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE))
    private = mmap.PROT_READ | mmap.PROT_WRITE
    return found if turned == -1 else "turned", outcome(
        lambda: mmap.mmap(fd, 4096, flags=mmap.MAP_PRIVATE, prot=private)
    )


@attack("S102", *CLOSED)
def reopen_the_runtime_for_writing(arena: Arena) -> Pair:
    """A descriptor's link in /proc leads to the file itself, but not around the mount that it was opened by."""
    link = f"/proc/self/fd/{os.open(os.__file__, os.O_RDONLY)}"
    return outcome(lambda: os.open(link, os.O_RDWR)), outcome(lambda: os.open(link, os.O_RDONLY))


@attack("S102", *CLOSED, "ENOTTY", "ENOTSUP")
def change_the_runtimes_inode_flags(arena: Arena) -> Pair:
    """Immutable, append-only, verity: what ioctl changes of a file."""
    fd = os.open(os.__file__, os.O_RDONLY)
    set_flags, set_extended, enable_verity = 0x40086602, 0x401C5820, 0x40806685
    found = [syscall("ioctl", fd, command, bytes(128)) for command in (set_flags, set_extended, enable_verity)]
    good = {*CLOSED, "ENOTTY", "ENOTSUP", "EOPNOTSUPP"}
    return found[0] if set(found) <= good else str(found), outcome(lambda: os.fstat(fd))


@attack("S103", "EACCES")
def run_a_program_from_scratch(arena: Arena) -> Pair:
    with _program(arena) as program:
        return outcome(lambda: os.execv(program, [program])), _run_the_interpreter()


@attack("S103", "EACCES")
def run_a_program_from_scratch_by_descriptor(arena: Arena) -> Pair:
    with _program(arena) as program:
        fd = os.open(program, os.O_RDONLY)
        return outcome(lambda: os.execve(fd, [program], {})), _run_the_interpreter()


@attack("S103", "EACCES")
def run_a_script_from_scratch(arena: Arena) -> Pair:
    write_file(f"{arena.own}/script", f"#!{os.path.realpath(sys.executable)}\n")
    os.chmod(f"{arena.own}/script", 0o755)
    return outcome(lambda: os.execv(f"{arena.own}/script", ["script"])), _run_the_interpreter()


@attack("S103", "EACCES", levels=READING)
def run_a_program_from_a_grant(arena: Arena) -> Pair:
    program = f"{arena.read}/program"
    assert os.stat(program).st_mode & 0o111
    return outcome(lambda: os.execv(program, [program])), _run_the_interpreter()


@attack("S109", "ENOSPC")
def fill_scratch(_: Arena) -> Pair:
    """Each folder of it has its size. The space comes back."""
    full = [outcome(lambda folder=folder: _fill(folder)) for folder in ("/tmp", "/dev/shm")]
    return (full[0] if len(set(full)) == 1 else str(full)), outcome(lambda: write_file("/tmp/again", "x" * 4096))


@attack("S109", "EROFS", "EACCES")
def fill_the_root(_: Arena) -> Pair:
    """The folders around the mounts are in memory as well, and have no size: nothing can be put there."""
    found = _first_not_in(
        CLOSED, {folder: lambda folder=folder: write_file(f"{folder}/x") for folder in ("/", "/dev", "/run")}
    )
    return found, outcome(lambda: write_file("/tmp/x"))


@contextmanager
def _program(arena: Arena) -> Iterator[str]:
    """A copy of the interpreter where one may write: a program that could be executed anywhere else."""
    path = f"{arena.own}/program"
    shutil.copyfile(os.path.realpath(sys.executable), path)
    os.chmod(path, 0o755)
    try:
        yield path
    finally:
        os.unlink(path)


def _fill(folder: str) -> None:
    made = []
    try:
        for index in range(64):
            made.append(f"{folder}/{index}")
            with open(made[-1], "wb", buffering=0) as stream:
                for _ in range(2048):
                    stream.write(bytes(1 << 16))  # short writes raise nothing, the next one does
                    if stream.tell() >= 1 << 22:
                        break
    finally:
        for path in made:
            os.unlink(path)


def _on_the_way(arena: Arena, folder: str) -> set[str]:
    """What a folder that lies on the way to a grant has to hold; nothing if it lies on none."""
    grants = (grant for grant in (arena.read, arena.write) if grant.startswith(f"{folder}/"))
    return {grant.removeprefix(f"{folder}/").partition("/")[0] for grant in grants}


def _own_file(arena: Arena) -> str:
    """The control: the same thing where it is granted."""
    if arena.level == "none":
        write_file("/tmp/file")
        return outcome(lambda: read_file("/tmp/file"))
    return outcome(lambda: (read_file(f"{arena.read}/file"), write_file(f"{arena.own}/file2")))


def _attributes(path: str) -> Attempts:
    return {
        "chmod": lambda: os.chmod(path, 0o777),
        "chown": lambda: os.chown(path, os.getuid(), os.getgid()),
        "utime": lambda: os.utime(path, (1, 1)),
        "utime now": lambda: os.utime(path),
        "setxattr": lambda: os.setxattr(path, "user.planted", b"x"),
        "security xattr": lambda: os.setxattr(path, "security.capability", CAPABILITY),
        "acl": lambda: os.setxattr(path, "system.posix_acl_access", b"\2\0\0\0"),
    }


def _first_not_in(denied: tuple[str, ...], attempts: Attempts) -> str:
    """The first of the denials' names, or the attempt that wasn't denied."""
    last = "nothing was tried"
    for name, action in attempts.items():
        last = outcome(action)
        if last not in denied:
            return f"{name}: {last}"
    return denied[0] if last in denied else last


def _run_the_interpreter() -> str:
    pid = os.fork()
    if pid == 0:
        os.execv(os.path.realpath(sys.executable), ["python", "-I", "-S", "-c", ""])
    return DONE if os.waitpid(pid, 0)[1] == 0 else "the interpreter could not be run"
