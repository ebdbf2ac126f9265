"""What /proc could give away or take in: of pid 1, of the machine, of the kernel's settings."""

from __future__ import annotations

import os

from tests.attacks.inside.kit import Arena, Pair, attack, outcome, read_file, write_file

CLOSED = ("EACCES", "EPERM", "EROFS", "ENOENT")
HIDDEN = ("EACCES", "EPERM", "ENOENT")
"""A call's own process sees nothing of the sandbox's first one."""


def _first_bytes(path: str) -> bytes:
    """Some of these files can be opened, and refuse to be read. Where nothing is mapped, as at 0, nothing is read."""
    fd = os.open(path, os.O_RDONLY)
    return b"" if path.endswith("/mem") else os.read(fd, 8)


def _of_first_process(name: str) -> None:
    """Pid 1 of the sandbox is bubblewrap: what it was started with, and what it could reach, is not the program's."""

    @attack("S202", *HIDDEN, name=f"first_process_{name}")
    def attempt(_: Arena) -> Pair:
        def look(process: str) -> str:
            path = f"/proc/{process}/{name}"
            if name in {"root", "cwd"}:
                return outcome(lambda: os.listdir(path))
            if name == "exe":
                return outcome(lambda: os.readlink(path))
            if name == "fd":
                return outcome(lambda: os.readlink(f"{path}/0"))
            if name == "ns":
                return outcome(lambda: os.readlink(f"{path}/user"))
            return outcome(lambda: _first_bytes(path))

        return look("1"), look("self")


for _name in ("root", "cwd", "exe", "environ", "maps", "mem", "fd", "ns", "auxv", "io", "pagemap", "personality"):
    _of_first_process(_name)


@attack("S202", *HIDDEN)
def first_process_memory_for_writing(_: Arena) -> Pair:
    return outcome(lambda: os.open("/proc/1/mem", os.O_RDWR)), outcome(lambda: os.open("/proc/self/mem", os.O_RDONLY))


@attack("S202", "none")
def environment_of_any_process(_: Arena) -> Pair:
    """The canary that the launcher's environment holds is nowhere to be read."""
    found = "none"
    seen = 0
    for process in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            text = read_file(f"/proc/{process}/environ")
        except OSError:
            continue
        seen += 1
        if "CANARY" in text or "PYTEST" in text or "HOME" in text:
            found = text
    return found, "done" if seen else "no environment could be read at all"


@attack("S201", "ESRCH", "ENOENT")
def processes_outside_by_number(arena: Arena) -> Pair:
    """The launcher and the sandbox beside this one have other numbers here, or none."""
    for pid in arena.outside_pids:
        if pid > 1000 and os.path.exists(f"/proc/{pid}"):  # lower numbers are this sandbox's own
            return f"{pid} is there", ""
    # In /proc's own numbers: a call's own process has others than it knows itself by.
    own = os.readlink("/proc/self")
    known = {"1", own, runner := _parent_of(own)}
    others = {name for name in os.listdir("/proc") if name.isdigit()} - known
    # What other attacks have left is on its way to its end, as a child of whoever adopts it.
    strangers = {name for name in others if _parent_of(name) not in {"1", runner, ""}}
    return "ESRCH" if not strangers else f"seen: {strangers}", outcome(lambda: os.stat(f"/proc/{own}"))


def _parent_of(process: str) -> str:
    """Empty when it has just ended."""
    try:
        return next(line.split()[1] for line in read_file(f"/proc/{process}/status").splitlines() if "PPid" in line)
    except OSError:
        return ""


def _kernel_setting(path: str) -> None:
    name = path.removeprefix("/proc/").replace("/", "_")

    @attack("S203", *CLOSED, name=f"write_{name}")
    def attempt(_: Arena) -> Pair:
        return outcome(lambda: os.open(path, os.O_WRONLY)), outcome(lambda: os.open("/proc/sys", os.O_RDONLY))


_SETTINGS = """
    /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/kernel/hostname /proc/sys/vm/drop_caches
    /proc/sys/kernel/ns_last_pid /proc/sys/kernel/shmmax /proc/sys/fs/mqueue/msg_max /proc/sys/net/ipv4/ip_forward
    /proc/sys/user/max_user_namespaces /proc/sys/fs/binfmt_misc/register /proc/sys/kernel/randomize_va_space
    /proc/sysrq-trigger /proc/irq/default_smp_affinity /proc/bus/input/devices /proc/mtrr /proc/scsi/scsi
    /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups /proc/self/oom_score_adj /proc/self/comm
    /proc/self/attr/current /proc/self/attr/exec /proc/self/mem /proc/self/clear_refs /proc/self/coredump_filter
    /proc/self/timerslack_ns /proc/self/autogroup /proc/self/sched /proc/self/loginuid /proc/self/make-it-fail
    /proc/1/oom_score_adj /proc/1/comm /proc/pressure/memory /proc/self/timens_offsets /proc/self/projid_map
"""

for _path in _SETTINGS.split():
    _kernel_setting(_path)


def _kernel_memory(path: str) -> None:
    name = path.strip("/").replace("/", "_")

    @attack("S203", *CLOSED, name=f"read_{name}")
    def attempt(_: Arena) -> Pair:
        return outcome(lambda: os.open(path, os.O_RDONLY)), outcome(lambda: read_file("/proc/meminfo"))


_SECRETS = """
    /proc/kcore /proc/kmsg /proc/kpagecount /proc/kpageflags /proc/vmallocinfo /proc/slabinfo /proc/timer_list
    /dev/mem /dev/kmsg /dev/port /dev/fuse /dev/kvm /dev/net/tun /dev/vhost-vsock /dev/vsock /dev/loop-control
    /dev/userfaultfd /dev/sda /dev/vda /dev/mapper/control /dev/uinput /dev/input /dev/snd /dev/dri /dev/autofs
    /dev/cpu_dma_latency /dev/hwrng
"""

for _path in _SECRETS.split():
    _kernel_memory(_path)


@attack("S203", "hidden")
def kernel_addresses(_: Arena) -> Pair:
    """Addresses of the kernel's functions, which an exploit wants first."""
    try:
        addresses = {line.split()[0] for line in read_file("/proc/kallsyms").splitlines()[:100]}
    except OSError:
        addresses = {"0"}
    shown = {each for each in addresses if each.strip("0")}
    return "hidden" if not shown else str(shown), outcome(lambda: read_file("/proc/self/maps"))


@attack("S203", "ENOENT")
def sys_and_cgroup_folders(_: Arena) -> Pair:
    for path in ("/sys", "/sys/fs/cgroup", "/sys/kernel/debug", "/sys/firmware", "/cgroup"):
        if (found := outcome(lambda path=path: os.listdir(path))) != "ENOENT":
            return f"{path}: {found}", ""
    return "ENOENT", outcome(lambda: read_file("/proc/self/cgroup"))


@attack("S203", *CLOSED)
def write_through_the_links_of_proc(_: Arena) -> Pair:
    """The file that a link in /proc/self leads to: the interpreter, the root."""
    return outcome(lambda: os.open("/proc/self/exe", os.O_WRONLY)), outcome(
        lambda: write_file("/proc/self/cwd/made") if os.access("/proc/self/cwd", os.W_OK) else None
    )
