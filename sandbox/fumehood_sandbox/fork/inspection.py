"""Checks a zygote and its children by what /proc says of them. Part of the fork supervisor's process."""

import fcntl
import os
import re
import sys

from fumehood_sandbox.fork.handshake import SUPERVISOR_STEP
from fumehood_sandbox.kernel.constants import CAPABILITY_SETS
from fumehood_sandbox.kernel.libc import StepError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LONGEST_FILE_BYTES = 1 << 16
_SHARED = re.compile(rb"^\S+ ...s .*$", re.MULTILINE)
# Source: include/uapi/linux/fs.h: struct procmap_query, PROCMAP_QUERY_VMA_SHARED | PROCMAP_QUERY_COVERING_OR_NEXT_VMA.
_PROCMAP_QUERY = 0xC0686611
_PROCMAP_QUERY_BYTES = 104
_PROCMAP_WHAT = slice(24, 80)  # start, end, flags, page size, offset, inode, device
_PROCMAP_END = slice(32, 40)
_SHARED_AT_OR_AFTER = 0x08 | 0x10
_CAPABILITIES = [name.encode() for name in CAPABILITY_SETS]


class Inspection:
    """Reads /proc by numbers of this process's own PID namespace."""

    def __init__(self, config: "dict[str, Any]") -> None:
        """As of the stage."""
        self.proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        self.zygote = ""
        pipes = {f"pipe:[{inode}]" for inode in config["pipes"]}
        self._known = {"/dev/null", f"socket:[{config['control_inode']}]", *pipes}
        """What a zygote may have open."""
        self._shared: frozenset[bytes] = frozenset()
        """The shared mappings that the zygote was approved with: nobody can write through them."""
        self._filters = 0
        self._depth = 0
        """How many numbers a child has: one more than its zygote, since it has a PID namespace more."""

    def check_zygote(self, zygote: str) -> None:
        """See that it has nothing that its children would share, and remember what they must be like.

        Raises:
            StepError: it has; `problem` is for the plugin's author.
        """
        self.zygote = zygote
        threads = self.list_folder(f"{zygote}/task")
        if len(threads) != 1:
            raise StepError("zygote", f"{len(threads) - 1} other threads were started by its import")
        for number in self.list_folder(f"{zygote}/fd"):
            target = os.readlink(f"{zygote}/fd/{number}", dir_fd=self.proc)
            if target not in self._known:
                raise StepError("zygote", f"descriptor {number} was left open by its import", target)
        self._shared = frozenset(self._shared_memory(zygote))
        mapping = ""
        for line in self.read_file(f"{zygote}/smaps").decode("utf-8", "replace").splitlines():
            if "-" in line.partition(" ")[0]:
                mapping = line
            elif line.startswith("VmFlags:") and " sh" in line:  # proc(5): shared, and open to be written
                raise StepError("zygote", "memory was shared by its import, which all calls could write to", mapping)
        status = self.read_file(f"{zygote}/status")
        self._filters = int(_status_field(status, b"Seccomp_filters"))
        self._depth = len(_status_field(status, b"NSpid").split()) + 1

    def check_child(self, pid: str, inodes: "list[int]") -> None:
        """Believe the kernel, not the child, whose code the plugin's import may have changed.

        Raises:
            StepError: it is not what it should be.
        """
        if set(self.list_folder(f"{pid}/fd")) != {"0", "1", "2"}:
            raise StepError("fork", "the child kept descriptors")
        for number, inode in enumerate(inodes):
            if os.readlink(f"{pid}/fd/{number}", dir_fd=self.proc) != f"pipe:[{inode}]":
                raise StepError("fork", f"the child's descriptor {number} is not its pipe")
        # After its descriptors: what it might have started earlier would have others, such as where orders come from.
        status = self.read_file(f"{pid}/status")
        if _status_field(status, b"Threads") != b"1" or self.read_file(f"{pid}/task/{pid}/children"):
            raise StepError("zygote", "a process for a call started others before its call came")
        if any(_status_field(status, name).strip(b"0") for name in _CAPABILITIES):
            raise StepError("fork", "the child has capabilities")
        if _status_field(status, b"PPid") != self.zygote.encode():
            raise StepError("fork", f"process {pid} is not the zygote's child")
        if (
            _status_field(status, b"NoNewPrivs") != b"1"
            or int(_status_field(status, b"Seccomp_filters")) <= self._filters
        ):
            raise StepError("fork", "the child lacks its filter")
        # Its number in its own namespace comes last. All four namespaces are made by one clone(2), or none.
        numbers = _status_field(status, b"NSpid").split()
        if numbers[-1] != b"1" or _status_field(status, b"NSsid").split()[-1] != b"1" or len(numbers) < self._depth:
            raise StepError("fork", "the child is not alone in namespaces and a session of its own")
        if not self._shared.issuperset(self._shared_memory(pid)):
            raise StepError("fork", "memory was shared after the zygote was approved")

    def _shared_memory(self, pid: str) -> "list[bytes]":
        """What memory is shared: where it is, how, and what of. Something else could lie at the same place by now.

        From Linux 6.11 on the kernel is asked for just that, being quicker.
        """
        fd = os.open(f"{pid}/maps", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)
        try:
            found: list[bytes] = []
            address = 0
            while True:
                query = bytearray(_PROCMAP_QUERY_BYTES)
                query[0:8] = _PROCMAP_QUERY_BYTES.to_bytes(8, sys.byteorder)
                query[8:16] = _SHARED_AT_OR_AFTER.to_bytes(8, sys.byteorder)
                query[16:24] = address.to_bytes(8, sys.byteorder)
                try:
                    fcntl.ioctl(fd, _PROCMAP_QUERY, query)
                except FileNotFoundError:
                    return found  # there is no further one
                except OSError:
                    break  # an older kernel
                found.append(bytes(query[_PROCMAP_WHAT]))
                address = int.from_bytes(query[_PROCMAP_END], sys.byteorder)
        finally:
            os.close(fd)
        return _SHARED.findall(self.read_file(f"{pid}/maps"))

    def parent_of(self, pid: str) -> str:
        """Whose child a process is."""
        return _status_field(self.read_file(f"{pid}/status"), b"PPid").decode()

    def list_folder(self, path: str) -> "list[str]":
        """The names in a folder of /proc."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.proc)
        try:
            return os.listdir(fd)  # noqa: PTH208 - pathlib is an import
        finally:
            os.close(fd)

    def read_file(self, path: str) -> bytes:
        """A file of /proc."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)
        try:
            parts = []
            while part := os.read(fd, _LONGEST_FILE_BYTES):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(fd)


def _status_field(status: bytes, field: bytes) -> bytes:
    """What /proc/PID/status says of this. A name with a line's end in it can't pass for a field: it is escaped."""
    _, found, rest = status.partition(b"\n" + field + b":\t")
    if not found:
        raise StepError(SUPERVISOR_STEP, f"the kernel does not say {field.decode()} of a process")
    return rest.partition(b"\n")[0]
