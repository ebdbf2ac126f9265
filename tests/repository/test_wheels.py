"""The wheels as users get them: built, installed into a fresh environment, and used from there."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest

from tests.repository.test_layout import NEEDS, ROOT

pytestmark = pytest.mark.slow("builds and installs every distribution")

TIMEOUT_S = 120.0


def run(*command: str | Path, cwd: Path) -> str:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("FUMEHOOD", "PYTHON", "PIP"))}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=cwd, env=kept
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for each in NEEDS:  # as pip has them built, with less around it
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT / each)
    return folder


@contextmanager
def installed(wheels: Path, name: str, *, others: tuple[str, ...] = ()) -> Iterator[Path]:
    """The `bin` of an environment with this distribution, of ours what it requires, of others what is pinned.

    `others`: no more of those than these.
    """
    # /tmp and not pytest's folder, which is root's alone: a plugin's process is another user and runs its interpreter.
    with tempfile.TemporaryDirectory(prefix="fh-") as path:
        folder = Path(path)
        folder.chmod(0o755)
        venv.create(folder / "env", with_pip=False)
        python = folder / "env/bin/python"
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        copy_dependencies(Path(run(python, "-c", where, cwd=folder).strip()), others)
        uv: list[str | Path] = [
            Path(sys.executable).with_name("uv"),
            "pip",
            "install",
            "--quiet",
            "--offline",
            "--no-index",
        ]
        run(*uv, "--python", python, "--find-links", wheels, name, cwd=folder)
        yield folder / "env/bin"


def copy_dependencies(site: Path, others: tuple[str, ...]) -> None:
    """What is pinned, from this environment: nothing is downloaded by a test. Linked where both lie on one disk."""
    lines = (ROOT / "constraints/runtime.txt").read_text().splitlines()
    for name in (line.partition("==")[0] for line in lines if not line.startswith("#")):
        if others and name not in others:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # the bundled bubblewrap, where the machine has its own
            continue
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file)))
            if ".." in file.parts or not source.exists():
                continue
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.hardlink_to(source)
            except OSError:
                shutil.copy2(source, target)  # with its time, which its bytecode knows it by


def test_fumehood_installs_the_sidecar_which_serves_and_calls(wheels: Path) -> None:
    with installed(wheels, "fumehood") as binaries:
        place = binaries.parents[1]
        assert "0.1.0" in run(binaries / "fumehood", "--version", cwd=place)
        run(binaries / "fumehood", "plugin", "new", "greeter", cwd=place)
        run(binaries / "fumehood", "plugin", "add", "greeter", "--yes", cwd=place)
        (place / "greeter").chmod(0o755)
        command = [str(binaries / "fumehood"), "serve"]
        with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as serving:
            try:
                assert serving.stdout is not None
                assert select.select([serving.stdout], [], [], TIMEOUT_S)[0]
                assert serving.stdout.readline().startswith(b"listening unix:")
                answer = run(binaries / "fumehood", "call", "greeter_hello", "names=Ada", "--json", cwd=place)
            finally:
                serving.terminate()
            assert serving.wait(TIMEOUT_S) == 0
        assert "Ada" in json.dumps(json.loads(answer)["content"])


_OF_THE_SDK = ("annotated-types", "protobuf", "pydantic", "pydantic_core", "typing_extensions", "typing-inspection")
PLUGIN = '''
from fumehood_sdk import Plugin
from fumehood_sdk.testing import ToolTester

plugin = Plugin("greet", version="1")

@plugin.tool(side_effects="none")
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"

print(ToolTester(plugin).call("greet", name="Ada").content[0].text)
'''


def test_the_sdk_alone_runs_a_plugin_and_brings_no_server(wheels: Path) -> None:
    with installed(wheels, "fumehood-sdk", others=_OF_THE_SDK) as binaries:
        (binaries / "greet.py").write_text(PLUGIN)
        assert run(binaries / "python", binaries / "greet.py", cwd=binaries) == "Hello, Ada!\n"
        code = "from importlib import metadata; print(*sorted(d.name for d in metadata.distributions()))"
        names = run(binaries / "python", "-c", code, cwd=binaries).split()
        assert {each for each in names if each.startswith("fumehood")} == {"fumehood-sdk", "fumehood-protos"}


def test_the_distribution_named_fumehood_holds_no_code(wheels: Path) -> None:
    (wheel,) = wheels.glob("fumehood-0*.whl")
    listed = run(sys.executable, "-m", "zipfile", "--list", wheel, cwd=wheels)
    assert ".py " not in listed
    assert "entry_points.txt" in listed
