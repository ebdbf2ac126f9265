"""The deny-list's further rules where no namespaces stand behind the filter.

Landlock covers the opening, making, renaming and removing of files. It covers neither their attributes nor what
processes of one user may do to one another (landlock(7), "Current limitations"), and the whole machine's objects have
no namespace here. What Landlock leaves open is therefore closed by number, for everything alike: a filter can't tell
a program's own file from another's.
"""

from __future__ import annotations

import errno

from fumehood_sandbox.seccomp.rule import Comparison, Condition, Rule

_ATTRIBUTES = (
    # An owner may do these to what he can only read, also by a descriptor that was opened for reading.
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", "file_setattr"),
    # Says what happens in folders that can't be read.
    "inotify_add_watch",
)
_EXTENDED_ATTRIBUTES = (
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr", "setxattrat"),
    # By path these read what lies outside the grants; by descriptor they may.
    *("removexattrat", "getxattr", "lgetxattr", "listxattr", "llistxattr", "getxattrat", "listxattrat"),
)
_SHARED_OBJECTS = (
    # System V ipc and POSIX message queues are the whole machine's.
    *("shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl"),
    *("mq_open", "mq_unlink"),
    # The mounts of the machine.
    *("statmount", "listmount"),
)
_GROUP = ("setsid", "setpgid")
"""What may neither leave its session nor its process group is killed with the group."""

_OF_A_PROCESS = {
    # By number these reach every process of the same user, the sidecar among them. 0 is the caller itself.
    "prlimit64": 0,
    "sched_setaffinity": 0,
    "sched_setscheduler": 0,
    "sched_setparam": 0,
    "sched_setattr": 0,
    "setpriority": 1,
    "ioprio_set": 1,
}
_PRIO_USER = 2
_IOPRIO_WHO_USER = 3

_HARMLESS_IOCTLS = (
    *(0x5401, 0x5402, 0x5403, 0x5404, 0x540F, 0x5413, 0x802C542A),  # TCGETS, TCSETS…, TIOCGPGRP, TIOCGWINSZ, TCGETS2
    *(0x541B, 0x5421, 0x5450, 0x5451, 0x5452, 0x5460),  # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC, FIOQSIZE
    *(0x80086601, 0xC020660B),  # FS_IOC_GETFLAGS, FS_IOC_FIEMAP
    *(0x40049409, 0x4020940D),  # FICLONE and FICLONERANGE, which need a descriptor that was opened for writing
)
"""Asked of terminals and files in passing. Others change attributes, or make things where Landlock doesn't look."""


def rules_without_namespaces() -> tuple[Rule, ...]:
    """What goes before the deny-list of the level."""
    return (
        *(Rule(name, errno.EPERM) for name in (*_ATTRIBUTES, *_SHARED_OBJECTS, *_GROUP)),
        # As on a file system without them, which every program knows how to take.
        *(Rule(name, errno.EOPNOTSUPP) for name in _EXTENDED_ATTRIBUTES),
        *(
            Rule(name, errno.EPERM, (Condition(argument, Comparison.NOT_IN, (0,)),))
            for name, argument in _OF_A_PROCESS.items()
        ),
        Rule("setpriority", errno.EPERM, (Condition(0, Comparison.IN, (_PRIO_USER,)),)),
        Rule("ioprio_set", errno.EPERM, (Condition(0, Comparison.IN, (_IOPRIO_WHO_USER,)),)),
        Rule("ioctl", errno.ENOTTY, (Condition(1, Comparison.NOT_IN, _HARMLESS_IOCTLS),)),
    )
