"""A virtual machine: qemu without KVM, and the lines that its guest writes to a virtio port."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.kernels import apparmor
from tools.kernels.matrix import FULL, Entry
from tools.kernels.places import RESULTS, KernelsError
from tools.kernels.root_image import RootImage

PROCESSORS = 1
CLOCK = ("-icount", "shift=0")
"""The guest's clock counts its instructions, one a nanosecond, and the real time only while it is idle. So a machine
that is slow or shared makes a run longer, and no test meets a limit of time because of it. It takes one thread."""
MEMORY_MIB = 4096
_END_TIMEOUT_S = 10.0
_TIMES_FULL = 5
"""What all of an entry's tests may take, in limits for the short ones."""


@dataclass(frozen=True, slots=True)
class _Board:
    program: str
    arguments: tuple[str, ...]
    console: str
    parameters: tuple[str, ...] = ()
    """Of the kernel's command line."""


BOARDS = {
    # qemu 7.2 spoils registers at a cmpxchg16b whenever it counts instructions, which ends in a panic of the kernel's.
    # TCG takes string instructions byte by byte, so neither kernel nor libc may prefer them for whole pages (clearcpuid
    # 112 is rep_good); vectors of 32 bytes are calls of qemu's own.
    "amd64": _Board(
        "qemu-system-x86_64",
        ("-machine", "q35", "-cpu", "max,cx16=off,erms=off,fsrm=off,avx=off,avx2=off,la57=off"),
        "ttyS0",
        ("clearcpuid=112",),
    ),
    "arm64": _Board(
        "qemu-system-aarch64", ("-machine", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on"), "ttyAMA0"
    ),
}


def boot(entry: Entry, root: RootImage, checkout: Path, tests: str) -> Iterator[dict[str, Any]]:
    """Boot an entry's kernel and give what its guest tells, until it is off. `tests` is as for `Entry.given`.

    Raises:
        KernelsError: the guest took longer than the entry's limit, or qemu ended with an error.
    """
    board = BOARDS[entry.architecture]
    RESULTS.mkdir(parents=True, exist_ok=True)
    console = RESULTS / f"{entry.name}.console"
    told, tells = os.pipe()
    parameters = (
        *(f"console={board.console}", "root=/dev/nvme0n1", "rw", "panic=-1", "audit=0", "init_on_alloc=0"),
        *board.parameters,
        *("systemd.unit=fumehood-kernels.service", "systemd.show_status=0", f"kernels.entry={entry.name}"),
        f"kernels.tests={tests}",
        entry.parameters,
    )
    command = [
        *(board.program, *board.arguments, "-accel", "tcg", *CLOCK, "-nodefaults", "-no-reboot"),
        *("-smp", str(PROCESSORS), "-m", str(MEMORY_MIB), "-display", "none", "-nic", "none"),
        *(
            "-kernel",
            str(root.kernel(entry.kernel)),
            "-append",
            " ".join(parameters),
            "-device",
            "nvme,id=disks,serial=disks",
        ),
        *("-drive", f"file={root.image},if=none,id=root,format=raw,snapshot=on"),
        *("-device", "nvme-ns,drive=root,bus=disks,nsid=1"),
        *("-drive", f"file={checkout},if=none,id=checkout,format=raw,snapshot=on"),
        *("-device", "nvme-ns,drive=checkout,bus=disks,nsid=2"),
        *("-serial", f"file:{console}", "-device", "virtio-rng-pci", "-device", "virtio-serial-pci"),
        *("-chardev", f"file,id=results,path=/proc/self/fd/{tells}"),
        *("-device", "virtserialport,chardev=results,name=results"),
        *(("-fw_cfg", f"name={apparmor.KEY},file={apparmor.compiled()}") if entry.profiles else ()),
    ]
    machine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[tells])
    os.close(tells)
    try:
        limit_s = entry.limit_s * (_TIMES_FULL if tests == FULL else 1)
        yield from _lines(told, time.monotonic() + limit_s)
        if machine.wait(_END_TIMEOUT_S):
            complaint = machine.stderr.read().decode(errors="replace") if machine.stderr else ""
            raise KernelsError(f"qemu ended with {machine.returncode}: {complaint.strip()[-500:]}")
    finally:
        os.close(told)
        machine.kill()
        machine.wait()


def _lines(fd: int, end_s: float) -> Iterator[dict[str, Any]]:
    rest = b""
    while True:
        if not select.select([fd], [], [], max(end_s - time.monotonic(), 0))[0]:
            raise KernelsError("the guest did not end within its limit")
        part = os.read(fd, 65536)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield json.loads(line)
