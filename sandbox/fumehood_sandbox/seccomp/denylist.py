"""The deny-list of system calls: what no sandboxed process may ask of the kernel, and why.

Everything else is allowed: allow-lists rot with each libc. What is denied here is what the other layers rest on, what
reaches the whole machine, and what has been the way in for kernel exploits while tools have no use for it.
"""

from __future__ import annotations

import errno
import stat

from fumehood_sandbox.kernel.constants import (
    CLONE_CHILD_SETTID,
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWTIME,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    CLONE_PARENT,
    REMOUNT_SCRATCH_FLAGS,
    SIGCHLD,
)
from fumehood_sandbox.seccomp.rule import Comparison, Condition, Rule

_NAMESPACE_FLAGS = (
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET
)
FORK_FLAGS = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS | CLONE_CHILD_SETTID | SIGCHLD
"""What a zygote's clone(2) may ask for beside ordinary forks, and nothing else with a namespace in it.

The lowest byte is the exit signal. The new user namespace gives power over the other three alone, and they begin as
copies of what this sandbox has.
"""
_O_CREAT = 0o100
_O_TMPFILE_BIT = 0o20000000
_SET_ID_BITS = stat.S_ISUID | stat.S_ISGID
_SPECIAL_TYPES = (stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK)
_RENAME_WHITEOUT = 4
_F_SETLEASE = 1024
_F_NOTIFY = 1026
_RLIMIT_CORE = 4
_MAP_HUGETLB = 0x40000
_MFD_HUGETLB = 0x4
_TIOCSTI = 0x5412
_TIOCLINUX = 0x541C
_AF_UNIX = 1
_STREAM_AND_SEQPACKET = (1, 5)
_INTERNET = (2, 10)
_STREAM = 1
_TCP = 6
_SOCKET_TYPE_MASK = 0xFFFFFFFF & ~(0o4000 | 0o2000000)  # SOCK_NONBLOCK and SOCK_CLOEXEC are flags beside the type
_PERSONALITY_LINUX = 0
_PERSONALITY_QUERY = 0xFFFFFFFF

_ALWAYS = (
    # File-system layout: what is mounted where is the sandbox.
    # mount itself is a rule of its own, below.
    *("umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick", "move_mount", "open_tree"),
    *("mount_setattr", "open_tree_attr"),
    # Namespaces of others. Making new ones is a condition on clone and unshare, below.
    "setns",
    # Other processes' memory and descriptors.
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp"),
    # Keyrings have no namespace of their own.
    *("add_key", "request_key", "keyctl"),
    # Large surfaces of the kernel that tools have no use for. io_uring also passes by every other rule here.
    *("bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    # Counted against a limit of the whole machine's (fs.aio-max-nr): one process could leave none to its databases.
    "io_setup",
    # The machine itself.
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "create_module"),
    *("swapon", "swapoff", "reboot", "syslog", "sethostname", "setdomainname", "vhangup"),
    *("acct", "quotactl", "quotactl_fd", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex"),
    # Files by handle pass by every mount; fanotify watches whole file systems.
    *("open_by_handle_at", "name_to_handle_at", "fanotify_init", "fanotify_mark"),
    # Old or privileged, and each once the way to an exploit.
    *("lookup_dcookie", "nfsservctl", "modify_ldt", "iopl", "ioperm", "uselib", "ustat", "sysfs", "_sysctl"),
    *("migrate_pages", "move_pages", "set_mempolicy_home_node", "lsm_set_self_attr"),
)
_SOCKETS = ("socket", "connect", "bind", "listen", "accept", "accept4")


def deny_list(*, relay: bool = False, forks: bool = False, remounts: bool = False) -> tuple[Rule, ...]:
    """The rules. They are the same at each level: no socket, but connected pairs.

    With `relay` there are TCP sockets, for a network namespace in which nothing can be reached but a relay. `forks` is
    for a zygote, which may make namespaces by `FORK_FLAGS`. `remounts` is for an inner stage that limits its scratch;
    it then loads `sealing_list`, which forbids them.
    """
    but_remounts = (Condition(3, Comparison.NOT_IN, (REMOUNT_SCRATCH_FLAGS,)),) if remounts else ()
    return (
        _when("mount", *but_remounts),
        *(Rule(name, errno.EPERM) for name in _ALWAYS),
        *(_tcp_sockets_alone() if relay else (Rule(name, errno.EPERM) for name in _SOCKETS)),
        # Their arguments lie in memory, where a filter can't look. ENOSYS makes every libc take the older call.
        Rule("clone3", errno.ENOSYS),
        Rule("openat2", errno.ENOSYS),
        *_new_namespaces(forks=forks),
        *_socket_pairs(),
        *_set_id_files(),
        *_special_files(),
        # Typing into a terminal and pasting on a console are commands to whoever sits there.
        _when("ioctl", Condition(1, Comparison.IN, (_TIOCSTI, _TIOCLINUX))),
        # A lease lets whoever opens the file outside wait for 45 s, through a read-only mount too. F_NOTIFY is its kin.
        _when("fcntl", Condition(1, Comparison.IN, (_F_SETLEASE, _F_NOTIFY))),
        # A child that would be this process's sibling, and so not among what it is ended with.
        _when("clone", Condition(0, Comparison.ANY_BIT, mask=CLONE_PARENT)),
        # Pid 1 is of the same user where the launcher is an ordinary one, and its limits may be set by that user.
        _when("prlimit64", Condition(0, Comparison.IN, (1,))),
        # Huge pages come from a pool of the whole machine's, which its databases count on.
        _when("mmap", Condition(3, Comparison.ANY_BIT, mask=_MAP_HUGETLB)),
        _when("memfd_create", Condition(1, Comparison.ANY_BIT, mask=_MFD_HUGETLB)),
        _when("personality", Condition(0, Comparison.NOT_IN, (_PERSONALITY_LINUX, _PERSONALITY_QUERY))),
    )


def sealing_list(*, relay: bool = False) -> tuple[Rule, ...]:
    """The rules that keep limits as the inner stage set them, for a second filter that it loads afterwards.

    With `relay` it has made the one socket that listens, and nobody makes another.

    The limit of core dumps must stay 1 byte, see `outside/rlimits.py`. Lowering it to 0 would undo that, and is what
    careful programs do at their start: they are told that it worked, since what they ask for is so already.
    """
    core = Condition(1, Comparison.IN, (_RLIMIT_CORE,))
    # The new limit is a pointer, and none means a question. One half of a pointer may be 0.
    changes = tuple(Condition(2, Comparison.NOT_IN, (0,), high=high) for high in (False, True))
    return (
        Rule("mount", errno.EPERM),
        Rule("setrlimit", 0, (Condition(0, Comparison.IN, (_RLIMIT_CORE,)),)),
        *(Rule("prlimit64", 0, (core, change)) for change in changes),
        *(Rule(name, errno.EPERM) for name in (("bind", "listen") if relay else ())),
    )


def _when(syscall: str, *conditions: Condition) -> Rule:
    return Rule(syscall, errno.EPERM, conditions)


def child_list() -> tuple[Rule, ...]:
    """The rules of a zygote's child beside its zygote's own: what makes them as strict as everybody else's, and more.

    A watch tells what is done with a file by everybody, also through a read-only mount: by a call beside this one.
    ENOSYS, as of a kernel without inotify, makes programs look by themselves from time to time.
    """
    return (*_new_namespaces(forks=False), *(Rule(name, errno.ENOSYS) for name in ("inotify_init", "inotify_init1")))


def _new_namespaces(*, forks: bool) -> tuple[Rule, ...]:
    """A user namespace gives a process all capabilities within it, and with them the kernel's less tested half.

    unshare(2) alone takes CLONE_NEWTIME, for clone(2) has the exit signal in these bits. clone(2) takes its flags from
    the low 32 bits alone (kernel/fork.c), which are what is compared.
    """
    but = (Condition(0, Comparison.NOT_IN, (FORK_FLAGS,)),) if forks else ()
    return (
        _when("clone", Condition(0, Comparison.ANY_BIT, mask=_NAMESPACE_FLAGS), *but),
        _when("unshare", Condition(0, Comparison.ANY_BIT, mask=_NAMESPACE_FLAGS | CLONE_NEWTIME)),
    )


def _tcp_sockets_alone() -> tuple[Rule, ...]:
    """Behind a proxy no other family, type or protocol is needed. MPTCP would pass by Landlock's rules on TCP."""
    return (
        *(Rule(name, errno.EPERM) for name in ("accept", "accept4")),
        _when("socket", Condition(0, Comparison.NOT_IN, _INTERNET)),
        _when("socket", Condition(1, Comparison.NOT_IN, (_STREAM,), mask=_SOCKET_TYPE_MASK)),
        _when("socket", Condition(2, Comparison.NOT_IN, (0, _TCP))),
    )


def _socket_pairs() -> tuple[Rule, ...]:
    """Connected pairs are what event loops wake themselves with.

    A datagram pair is denied: it can be pointed at a socket's path outside with sendto.
    """
    return (
        _when("socketpair", Condition(0, Comparison.NOT_IN, (_AF_UNIX,))),
        _when("socketpair", Condition(1, Comparison.NOT_IN, _STREAM_AND_SEQPACKET, mask=_SOCKET_TYPE_MASK)),
    )


def _set_id_files() -> tuple[Rule, ...]:
    """A set-user-id file in a granted folder would hand its owner's rights to whoever finds it outside."""
    mode_arguments = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
    creating = {"open": (1, 2), "openat": (2, 3)}
    return (
        *(
            _when(name, Condition(argument, Comparison.ANY_BIT, mask=_SET_ID_BITS))
            for name, argument in mode_arguments.items()
        ),
        # The mode is read only with these flags; without them the register may hold anything.
        *(
            _when(
                name,
                Condition(flags, Comparison.ANY_BIT, mask=_O_CREAT | _O_TMPFILE_BIT),
                Condition(mode, Comparison.ANY_BIT, mask=_SET_ID_BITS),
            )
            for name, (flags, mode) in creating.items()
        ),
    )


def _special_files() -> tuple[Rule, ...]:
    """A device in a granted folder is one outside. A FIFO or a socket there holds up whoever opens it outside.

    Pipes without a name do inside what a FIFO could. A rename can leave a device in the old name's place.
    """
    return (
        _when("mknod", Condition(1, Comparison.IN, _SPECIAL_TYPES, mask=stat.S_IFMT(0xFFFF))),
        _when("mknodat", Condition(2, Comparison.IN, _SPECIAL_TYPES, mask=stat.S_IFMT(0xFFFF))),
        _when("renameat2", Condition(4, Comparison.ANY_BIT, mask=_RENAME_WHITEOUT)),
    )
