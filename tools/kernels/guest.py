"""The program of the guest: sets its kernel up as one entry of the matrix says, runs doctor and pytest, powers off.

Started by fumehood-kernels.service of the root file system. The kernel's command line has the entry's name.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shlex
import subprocess
import threading
from pathlib import Path
from typing import Any

from tools.kernels import apparmor
from tools.kernels.guest_unit import try_unit
from tools.kernels.matrix import BY_NAME, Entry, Run

PORT = "results"
REPORT = Path("/run/kernels-report")
CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = str(CHECKOUT / ".venv/bin/python")
_LANDLOCK_CREATE_RULESET = 444
_TEST_TIMEOUT_S = 600
_LONGEST_TAIL = 2000
_LAST_LINE_TIMEOUT_S = 10.0


class Results:
    """The virtio port that the machine outside reads, one JSON object a line."""

    def __init__(self) -> None:
        # Without udev there are no links in /dev/virtio-ports.
        ports = Path("/sys/class/virtio-ports").iterdir()
        name = next(each.name for each in ports if (each / "name").read_text(encoding="ascii").strip() == PORT)
        self._port = Path("/dev", name).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the guest is up
        self._lock = threading.Lock()
        self.ended = threading.Event()
        """Set when the last line of a run of pytest has been handed on."""

    def tell(self, **event: object) -> None:
        """Write one event."""
        self.forward(json.dumps(event))

    def forward(self, line: str) -> None:
        """Write a line that is one already."""
        with self._lock:
            self._port.write(line + "\n")
            self._port.flush()
        if json.loads(line)["event"] == "end":
            self.ended.set()


def main() -> None:
    """Run an entry to its end."""
    results = Results()
    try:
        words = (each.partition("=") for each in Path("/proc/cmdline").read_text(encoding="ascii").split())
        parameters = {name: value for name, _, value in words}
        entry = BY_NAME[parameters["kernels.entry"]].given(parameters["kernels.tests"])
        _set_up(entry)
        results.tell(event="kernel", **_kernel())
        _forward_reports(results)
        for run in entry.runs:
            _run(run, results)
        results.tell(event="over")
    except Exception as error:  # noqa: BLE001 - told to the machine outside, which has nothing else to go by
        results.tell(event="broken", reason=repr(error))


def _set_up(entry: Entry) -> None:
    mount = ["/bin/mount", "-t", "tmpfs", "-o", "mode=1777", "none", "/tmp"]  # noqa: S108 - the guest's
    subprocess.run(mount, check=True)
    for key, value in entry.sysctls:
        Path("/proc/sys", key.replace(".", "/")).write_text(value, encoding="ascii")
    if entry.profiles:
        apparmor.load()


def _kernel() -> dict[str, Any]:
    """What this kernel says of itself."""
    lsm = Path("/sys/kernel/security/lsm")
    return {
        "release": platform.release(),
        "machine": platform.machine(),
        "landlock_abi": max(ctypes.CDLL(None).syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1), 0),
        "lsm": lsm.read_text(encoding="ascii").strip() if lsm.exists() else "",
        "controllers": Path("/sys/fs/cgroup/cgroup.controllers").read_text(encoding="ascii").split(),
    }


def _forward_reports(results: Results) -> None:
    """Make the FIFO that the reporters write to, and hand on what comes."""
    os.mkfifo(REPORT)
    REPORT.chmod(0o622)
    # Read and write, or each reporter that closes it would be the end of the file.
    stream = os.fdopen(os.open(REPORT, os.O_RDWR), "r", encoding="utf-8")

    def forward() -> None:
        for line in stream:
            results.forward(line.rstrip("\n"))

    threading.Thread(target=forward, daemon=True).start()


def _run(run: Run, results: Results) -> None:
    results.tell(event="run", run=run.name)
    if run.unit:
        try_unit(results.tell)
        return
    # On the disk, and in none of the folders that attacks look for, of which a plugin's own path would show a part.
    folder = Path(f"/opt/run-{re.sub('[^a-z]+', '-', run.name)}")
    folder.mkdir()
    os.chown(folder, *_ids(run.user))
    doctor = [PYTHON, "-m", "fumehood_server", "doctor", "--json"]
    told = _serve(run, folder, doctor, cwd=folder)
    results.tell(event="doctor", run=run.name, report=_parsed(told))
    if run.tests:
        # In one process: a control group with several can't have leaves, and nobody may move them but who started them.
        pytest = [PYTHON, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tools.kernels.reporter"]
        pytest += ["--numprocesses=0", f"--timeout={_TEST_TIMEOUT_S}"]
        pytest += [f"--basetemp={folder}/pytest", *run.tests]
        results.ended.clear()
        printed = _serve(run, folder, pytest, cwd=CHECKOUT)
        results.ended.wait(_LAST_LINE_TIMEOUT_S)
        results.tell(event="printed", text=printed.decode("utf-8", "replace")[-_LONGEST_TAIL:])


def _serve(run: Run, folder: Path, command: list[str], *, cwd: Path) -> bytes:
    """Run the command as a service of systemd, as an operator's sidecar would run; gives what it printed.

    Not by systemd-run, which waits for a service by D-Bus, and that isn't here.
    """
    places = {"HOME": folder, "TMPDIR": folder, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "KERNELS_REPORT": REPORT}
    places["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
    printed = Path("/run/kernels-printed")
    printed.unlink(missing_ok=True)
    Path("/run/kernels.sh").write_text(f"exec {shlex.join(command)}\n", encoding="utf-8")
    settings = {
        "Type": "oneshot",
        "User": run.user,
        "WorkingDirectory": cwd,
        "Delegate": "yes" if run.delegate else "no",
        "Environment": " ".join(f"{name}={value}" for name, value in places.items()),
        "ExecStart": "/bin/sh /run/kernels.sh",
        "TimeoutStartSec": "infinity",
        "StandardOutput": f"file:{printed}",
        "StandardError": "file:/dev/console",
        "LimitNOFILE": "65536",
        "TasksMax": "infinity",
        "OOMPolicy": "continue",
        **({"AppArmorProfile": run.profile} if run.profile else {}),
    }
    unit = Path("/run/systemd/system/tried.service")
    unit.parent.mkdir(parents=True, exist_ok=True)
    lines = ["[Unit]", "DefaultDependencies=no", "[Service]", *(f"{key}={value}" for key, value in settings.items())]
    unit.write_text("\n".join((*lines, "")), encoding="utf-8")
    subprocess.run(["/bin/systemctl", "daemon-reload"], check=True)
    subprocess.run(["/bin/systemctl", "start", unit.name], check=False)
    return printed.read_bytes() if printed.exists() else b""


def _ids(user: str) -> tuple[int, int]:
    found = next(
        line.split(":") for line in Path("/etc/passwd").read_text().splitlines() if line.startswith(f"{user}:")
    )
    return int(found[2]), int(found[3])


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except ValueError:
        return {"usable": False, "findings": [], "text": text.decode("utf-8", "replace")[-2000:]}


if __name__ == "__main__":
    main()
