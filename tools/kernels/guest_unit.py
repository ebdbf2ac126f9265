"""In the guest: installs docs/deploy/fumehood.service as its page says, asks doctor under it, and calls a tool."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = "/opt/fumehood/bin/fumehood"
CONFIG = Path("/etc/fumehood/fumehood.toml")
ADDRESS = "unix:/run/fumehood/fumehood.sock"
_UNITS = Path("/etc/systemd/system")
_TRIES = 120
_CALL_TIMEOUT_S = 300

Tell = Callable[..., None]


def try_unit(tell: Tell) -> None:
    """Tell of a doctor and of three tests: the service serves a call, bounds it by a control group, and ends."""
    _install()
    unit = (CHECKOUT / "docs" / "deploy" / "fumehood.service").read_text(encoding="utf-8")
    (_UNITS / "fumehood.service").write_text(unit, encoding="utf-8")
    printed = Path("/var/log/doctor.json")
    (_UNITS / "doctor.service").write_text(_doctor(unit, printed), encoding="utf-8")
    _systemctl("daemon-reload")
    _systemctl("start", "doctor.service")
    tell(event="doctor", report=json.loads(printed.read_text(encoding="utf-8")))
    _systemctl("start", "fumehood.service")
    served, receipt = _call()
    _tell_test(tell, "the service serves a call", problem="" if "sandbox" in receipt else served[-1500:])
    layers = [each["name"] for each in receipt.get("sandbox", {}).get("layers", [])]
    _tell_test(tell, "its worker has a control group", problem="" if "cgroup" in layers else f"layers: {layers}")
    _systemctl("stop", "fumehood.service")
    state = _systemctl("show", "--property=Result,ExecMainStatus", "fumehood.service").stdout.split()
    ended = state == ["Result=success", "ExecMainStatus=0"]
    _tell_test(tell, "it ends when it is told to", problem="" if ended else str(state))
    tell(event="end", status=0)


def _install() -> None:
    """What docs/deploy/README.md says under "Set up" and "systemd"; the environment is the tests' own."""
    Path("/opt/fumehood").mkdir()
    subprocess.run(["/bin/mount", "--bind", str(CHECKOUT / ".venv"), "/opt/fumehood"], check=True)
    shutil.copytree(CHECKOUT / "examples" / "plugins" / "dice", "/opt/plugins/dice")
    CONFIG.parent.mkdir()
    CONFIG.write_text(
        f'[server]\nlisten = ["{ADDRESS}"]\nstate_dir = "/var/lib/fumehood"\n[[plugin]]\npath = "/opt/plugins/dice"\n',
        encoding="utf-8",
    )
    subprocess.run([PROGRAM, "plugin", "add", "--yes", "/opt/plugins/dice"], check=True, cwd=CONFIG.parent)
    subprocess.run(
        ["/sbin/useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", "fumehood"], check=True
    )


def _doctor(unit: str, printed: Path) -> str:
    """The same unit, of a program that ends."""
    lines = [line for line in unit.splitlines() if not line.startswith(("Type=", "Restart", "ExecStart="))]
    at = lines.index("[Service]") + 1
    lines[at:at] = [
        "Type=oneshot", f"ExecStart={PROGRAM} doctor --json --config {CONFIG}", f"StandardOutput=file:{printed}",
    ]  # fmt: skip
    return "\n".join((*lines, ""))


def _call() -> tuple[str, dict[str, Any]]:
    """What a caller of the same user is told, and its result."""
    caller = ["/usr/bin/setpriv", "--reuid=fumehood", "--regid=fumehood", "--clear-groups", PROGRAM]
    answer = ""
    for _ in range(_TRIES):
        tools = subprocess.run(
            [*caller, "tools", "--address", ADDRESS], capture_output=True, check=False, text=True, cwd="/"
        )
        answer = tools.stdout + tools.stderr
        if tools.returncode == 0:
            break
    done = subprocess.run(
        [*caller, "call", "--address", ADDRESS, "--json", "roll_dice", "count=2", "sides=6"],
        capture_output=True, check=False, text=True, cwd="/", timeout=_CALL_TIMEOUT_S,
    )  # fmt: skip
    try:
        return done.stdout, dict(json.loads(done.stdout))
    except ValueError:
        return answer + done.stdout + done.stderr, {}


def _tell_test(tell: Tell, name: str, *, problem: str) -> None:
    tell(event="test", test=f"unit::{name}", outcome="failed" if problem else "passed", reason=problem)


def _systemctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Nothing else of a system is up here: neither the network nor sysinit.target.
    ignoring = ["--job-mode=ignore-dependencies"] if arguments[0] == "start" else []
    return subprocess.run(
        ["/bin/systemctl", *arguments[:1], *ignoring, *arguments[1:]], check=False, capture_output=True, text=True
    )
