"""The whole sidecar where user namespaces are forbidden, as in a container with its engine's default profile."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fumehood
import fumehood_evidence
import fumehood_sdk
import fumehood_server
import grpc
import pytest
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_sandbox import bubblewraps
from fumehood_sandbox.outside.identity import user_for

from tests.landlock_only.harness import folder_for_everybody
from tests.sandbox.harness import until_gone
from tests.sidecar import Sidecar, running_sidecar, write_plugin
from tests.users import ORDINARY, SANDBOX_AND_PACKAGES, SYSTEM_PYTHON, as_ordinary_user, why_not

from .launchers import LAUNCHERS

_ROOT = Path(__file__).resolve().parents[2]
_BOUND_S = 60.0
_SOURCES = (
    *(str(Path(module.__path__[0]).parent) for module in (fumehood, fumehood_evidence, fumehood_sdk, fumehood_server)),
    *SANDBOX_AND_PACKAGES,
)
_LANDLOCK = '[sandbox]\nminimum = "landlock"\n'
_LEAVER = """
[plugin]
name = "leaver"
version = "1.0.0"
kind = "cli"
binary = "sh"

[[tool]]
name = "leave"
description = "Leave a process behind, and say its number."
side_effects = "none"
argv = ["-c", "(sleep 600 > /dev/null 2>&1 & echo $!)"]

[tool.input_schema]
type = "object"
"""
_STUBBORN = """
    import os, signal, time
    from pathlib import Path
    from fumehood_sdk import Plugin
    plugin = Plugin("stubborn", version="1.0.0")

    @plugin.tool(side_effects="write", timeout_s=10)  # its process is started within it, on a busy machine too
    def hang(folder: str) -> None:
        \"\"\"Start a process of no parent, and ignore whoever asks for the end.\"\"\"
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if os.fork() == 0:
                (Path(folder) / str(os.getpid())).open("x").close()
                time.sleep(600)
            os._exit(0)
        (Path(folder) / str(os.getpid())).open("x").close()
        time.sleep(600)
"""
_PLUGINS = _ROOT / "examples" / "plugins"

_WHY_NOT = why_not(*_SOURCES)

pytestmark = [
    pytest.mark.promise("S904"),
    pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT),
]


def _interpreter(user: str, *, contained: bool = True) -> tuple[str, ...]:
    """The system's interpreter in such a container, as root or as an ordinary user."""
    as_user = as_ordinary_user() if user == "ordinary" and os.geteuid() == 0 else ()
    inside = (SYSTEM_PYTHON, "-B", str(Path(__file__).with_name("contained.py")), "engine") if contained else ()
    return (*as_user, *inside, SYSTEM_PYTHON, "-B")


@pytest.fixture(params=LAUNCHERS)
def user(request: pytest.FixtureRequest) -> str:
    return _user(request)


def _user(request: pytest.FixtureRequest) -> str:
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("this whole suite runs as an ordinary user")
    return str(request.param)


def _environment(folder: Path) -> dict[str, str]:
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    temporary.chmod(0o777)
    return {"PYTHONPATH": ":".join(_SOURCES), "PATH": "/usr/bin:/bin", "HOME": "/nowhere", "TMPDIR": str(temporary)}


def _call(target: str, tool: str, **arguments: Any) -> tool_pb2.ToolResult:
    with grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        request = pb.CallToolRequest(tool=tool, arguments_json=json.dumps(arguments))
        answer: pb.CallToolResponse = ToolServiceStub(channel).CallTool(request, timeout=_BOUND_S)
    return answer.result


def _data(folder: Path, user: str) -> tuple[Path, Path]:
    """A folder to read and one to write, of the user whose the plugin `files` will be."""
    read, write = folder / "read", folder / "write"
    for each in (read, write):
        each.mkdir()
        if os.geteuid() == 0:
            owner = (ORDINARY, ORDINARY) if user == "ordinary" else user_for("files")
            assert owner is not None
            os.chown(each, *owner)
    (read / "note").write_text("a granted word\n")
    return read, write


@dataclass(frozen=True)
class House:
    """A sidecar that may do without namespaces, and what its plugins may read and write."""

    user: str
    sidecar: Sidecar
    read: Path
    write: Path
    numbers: Path


@pytest.fixture(scope="module", params=LAUNCHERS)
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    user = _user(request)
    with folder_for_everybody() as folder:
        read, write = _data(folder, user)
        numbers, leaver = folder / "numbers", folder / "leaver"
        for each in (numbers, leaver):
            each.mkdir()
        numbers.chmod(0o777)
        (leaver / "plugin.toml").write_text(_LEAVER)
        stubborn = write_plugin(folder / "stubborn", "stubborn", _STUBBORN)
        grants = f'max_side_effects = "write"\nread = ["{read}"]\nwrite = ["{write}"]\n'
        grants += '[plugin.tools.write_file]\npermission = "allow"\n'
        hanging = f'max_side_effects = "write"\nwrite = ["{numbers}"]\n[plugin.tools.hang]\npermission = "allow"\n'
        with running_sidecar(
            [
                *(_PLUGINS / "dice", (_PLUGINS / "files", grants), (_PLUGINS / "grep", f'read = ["{read}"]\n')),
                *(leaver, (stubborn, hanging)),
            ],
            more=_LANDLOCK,
            interpreter=_interpreter(user),
            environment=_environment(folder),
            everybody=True,
        ) as sidecar:
            yield House(user, sidecar, read, write, numbers)
        assert list((folder / "tmp").iterdir()) == []


def test_tools_run_without_namespaces_where_the_operator_accepts_that(house: House) -> None:
    target = house.sidecar.target
    rolled = _call(target, "roll_dice", count=2, sides=6)
    noted = _call(target, "read_file", path=str(house.read / "note"))
    written = _call(target, "write_file", path=str(house.write / "new"), text="x")
    grepped = _call(target, "grep_files", pattern="granted", path=str(house.read))
    outside = _call(target, "read_file", path="/etc/passwd")
    for result in (rolled, noted, written, grepped):
        assert not result.is_error, result
        assert result.sandbox.backend == "landlock"
        weaker = {layer.name for layer in result.sandbox.layers if layer.weaker}
        assert {"file system", "processes", "network", "ipc", "scratch", "rlimits"} <= weaker
        assert ("identity" in weaker) is (house.user == "ordinary")
    assert "a granted word" in noted.content[0].text
    assert (house.write / "new").read_text() == "x"
    assert outside.is_error


def test_program_of_a_cli_plugin_leaves_nothing_though_it_has_no_group_of_its_own(house: House) -> None:
    left = [_call(house.sidecar.target, "leave") for _ in range(2)]
    for result in left:
        assert not result.is_error, result
        # There is no pid namespace: the number is everybody's.
        until_gone([int(result.content[0].text)])


def test_call_that_ignores_its_end_is_ended_with_all_it_started(house: House) -> None:
    result = _call(house.sidecar.target, "hang", folder=str(house.numbers))
    assert result.error.code == "TOOL_TIMEOUT", result
    left = [int(path.name) for path in house.numbers.iterdir()]
    assert len(left) == 2
    until_gone(left)


def test_nothing_runs_there_unless_the_operator_accepts_it(folder: Path, user: str) -> None:
    with running_sidecar(
        [_PLUGINS / "dice"], interpreter=_interpreter(user), environment=_environment(folder), everybody=True
    ) as sidecar:
        result = _call(sidecar.target, "roll_dice", count=2, sides=6)
        problem = sidecar.logged(event="sandbox_unavailable")
    assert result.error.code in {"TOOL_NOT_FOUND", "CONFIG_SANDBOX_UNAVAILABLE"}
    assert "namespace" in problem["message"]
    assert "docs/deploy" in problem["remedy"]


def _doctor(folder: Path, interpreter: tuple[str, ...], config: str) -> tuple[int, list[dict[str, str]]]:
    (folder / "fumehood.toml").write_text(config)
    done = subprocess.run(
        [*interpreter, "-m", "fumehood_server", "doctor", "--json"],
        env=_environment(folder),
        cwd=folder,
        capture_output=True,
        check=False,
        text=True,
        timeout=_BOUND_S,
    )
    return done.returncode, json.loads(done.stdout)["findings"]


def test_doctor_tries_both_backends_and_says_which_is_used(folder: Path, user: str) -> None:
    status, findings = _doctor(folder, _interpreter(user), _LANDLOCK)
    (choice,) = [each for each in findings if each["layer"] == "backend"]
    assert (status, choice["status"]) == (0, "weaker")
    assert "landlock" in choice["detail"]
    assert [each for each in findings if each["area"] == "landlock" and each["status"] in {"missing", "note"}] == []
    assert {"attributes", "process group", "shared objects"} <= {each["feature"] for each in findings}
    (namespaces,) = [each for each in findings if each["feature"] == "bubblewrap"]
    assert namespaces["status"] == "note"

    if user == "root":  # what the operator accepts, and what forbids namespaces, are the same for both
        status, findings = _doctor(folder, _interpreter(user), "")
        (choice,) = [each for each in findings if each["layer"] == "backend"]
        assert (status, choice["status"]) == (1, "missing")
        assert 'minimum = "landlock"' in choice["remedy"]
        return
    status, findings = _doctor(folder, _interpreter(user, contained=False), _LANDLOCK)
    (choice,) = [each for each in findings if each["layer"] == "backend"]
    namespaces = any(not each.problem for each in bubblewraps())
    assert (status, choice["status"]) == (0, "in force" if namespaces else "weaker")
