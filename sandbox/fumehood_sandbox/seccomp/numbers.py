"""System-call numbers of what the deny-list names, for each architecture.

Source: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h, which aarch64 uses. Numbers of
system calls never change, and those from 424 on are the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # name: (x86_64, aarch64); None where the architecture has no such call
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "setns": (308, 268),
    "unshare": (272, 97),
    "clone": (56, 220),
    "clone3": (435, 435),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "_sysctl": (156, None),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "set_mempolicy_home_node": (450, 450),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "renameat2": (316, 276),
    "io_setup": (206, 0),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "creat": (85, None),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "mmap": (9, 222),
    "memfd_create": (319, 279),
    "setrlimit": (160, 164),
    "prlimit64": (302, 261),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "lsm_set_self_attr": (460, 460),
    # What only the filter without namespaces names.
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "file_setattr": (469, 469),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "getxattr": (191, 8),
    "lgetxattr": (192, 9),
    "listxattr": (194, 11),
    "llistxattr": (195, 12),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "getxattrat": (464, 464),
    "listxattrat": (465, 465),
    "removexattrat": (466, 466),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """What a filter has to know of a processor architecture."""

    name: str
    """As `platform.machine()` names it."""
    audit: int
    """AUDIT_ARCH_*, from linux/audit.h."""
    column: int
    """Where its numbers stand in the table."""
    foreign_bit: int = 0
    """A bit in the number that marks a second ABI under the same AUDIT_ARCH, to be refused: x32 on x86_64."""

    def number(self, syscall: str) -> int | None:
        """The call's number, or None where this architecture doesn't have it."""
        return _NUMBERS[syscall][self.column]


X86_64 = Architecture("x86_64", 0xC000003E, 0, foreign_bit=0x40000000)
AARCH64 = Architecture("aarch64", 0xC00000B7, 1)
ARCHITECTURES = {architecture.name: architecture for architecture in (X86_64, AARCH64)}
