"""Constants of the kernel's interface, as its headers spell them. The same on every architecture unless said otherwise.

Handed to the stages beside their code, so it imports nothing.
"""

# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_READ = 23
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

# linux/capability.h
CAPABILITY_VERSION_3 = 0x20080522
LAST_POSSIBLE_CAPABILITY = 63
CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETPCAP = 5, 6, 7, 8
CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd")
"""As /proc/PID/status names them (proc_pid_status(5))."""

# linux/sched.h
CLONE_PARENT = 0x00008000
CLONE_NEWTIME = 0x00000080
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_CHILD_SETTID = 0x01000000

# linux/mount.h, linux/fcntl.h
MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 4
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
MOUNT_ATTR_IDMAP = 0x100000

# linux/seccomp.h, linux/filter.h
SECCOMP_MODE_FILTER = 2
SECCOMP_SET_MODE_FILTER = 1
SOCK_FILTER_BYTES = 8

# linux/landlock.h
LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_RULE_PATH_BENEATH = 1
LANDLOCK_RULE_NET_PORT = 2
LANDLOCK_ACCESS_FS_EXECUTE = 1 << 0
LANDLOCK_ACCESS_FS_WRITE_FILE = 1 << 1
LANDLOCK_ACCESS_FS_READ_FILE = 1 << 2
LANDLOCK_ACCESS_FS_READ_DIR = 1 << 3
LANDLOCK_ACCESS_FS_MAKE_CHAR = 1 << 6
LANDLOCK_ACCESS_FS_MAKE_BLOCK = 1 << 11
LANDLOCK_ACCESS_FS_TRUNCATE = 1 << 14
LANDLOCK_ACCESS_FS_IOCTL_DEV = 1 << 15
LANDLOCK_ACCESS_NET_BIND_TCP = 1 << 0
LANDLOCK_ACCESS_NET_CONNECT_TCP = 1 << 1
LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0
LANDLOCK_SCOPE_SIGNAL = 1 << 1

# Numbers of system calls: from 424 on the same on every architecture.
SYS_OPEN_TREE = 428
SYS_MOVE_MOUNT = 429
SYS_MOUNT_SETATTR = 442
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_ADD_RULE = 445
SYS_LANDLOCK_RESTRICT_SELF = 446
# The older ones: arch/x86/entry/syscalls/syscall_64.tbl, and include/uapi/asm-generic/unistd.h, which aarch64 uses.
SYS_RT_SIGACTION = {"x86_64": 13, "aarch64": 134}
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
SYS_PRCTL = {"x86_64": 157, "aarch64": 167}
SYS_PRLIMIT64 = {"x86_64": 302, "aarch64": 261}
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}

# Signals: signal(7). The module `signal` is an import of 3 ms.
SIGKILL = 9
SIGCHLD = 17
LAST_SIGNAL = 64
SIGNAL_SET_BYTES = 8
STRUCT_SIGACTION_BYTES = 32

# Sockets: asm-generic/socket.h, linux/socket.h
SO_PASSCRED = 16
SO_PASSPIDFD = 76
SCM_CREDENTIALS = 2
SCM_PIDFD = 4
CMSG_SPACE_OF_DESCRIPTORS = 128
"""CMSG_SPACE(3) of more descriptors than any message of ours has."""

# Files: stat.h. The module `stat` is an import.
S_IFMT = 0o170000
S_IFDIR = 0o040000

LAST_DESCRIPTOR = 0x7FFFFFFF
"""For closerange()."""
SIGNALLED_STATUS = 128
"""A shell counts a death by signal n as the exit status 128 + n."""
STAGE_FAILED_STATUS = 125
"""What a stage exits with that has reported why."""
