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
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest

from tests.repository.test_layout import NEEDS, ROOT

pytestmark = pytest.mark.slow("builds and installs every distribution")

TIMEOUT_S = 120.0


def environment() -> dict[str, str]:
    """As a user's, without what says how these tests run."""
    ours = ("FUMEHOOD", "PYTHON", "PIP", "UV_", "VIRTUAL_ENV")
    return {key: value for key, value in os.environ.items() if not key.startswith(ours)}


def run(*command: str | Path, cwd: Path, more: Mapping[str, str] | None = None) -> str:
    """What the command writes to stdout, once it has ended with 0. `more` is of its environment."""
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=cwd,
        env=environment() | dict(more or {}),
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


def pinned(only: tuple[str, ...] = ()) -> Iterator[metadata.Distribution]:
    """What is pinned and installed here: nothing is downloaded by a test."""
    lines = (ROOT / "constraints/runtime.txt").read_text().splitlines()
    for name in (line.partition("==")[0] for line in lines if not line.startswith("#")):
        if only and name not in only:
            continue
        try:
            yield metadata.distribution(name)
        except metadata.PackageNotFoundError:  # the bundled bubblewrap, where the machine has its own
            continue


def files_of(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Where each file lies in `site-packages`, and here. No scripts."""
    for file in distribution.files or ():
        source = Path(str(distribution.locate_file(file)))
        if ".." not in file.parts and source.exists():
            yield str(file), source


def copy_dependencies(site: Path, others: tuple[str, ...]) -> None:
    """From this environment. Linked where both lie on one disk."""
    for distribution in pinned(others):
        for file, source in files_of(distribution):
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.hardlink_to(source)
            except OSError:
                shutil.copy2(source, target)  # with its time, which its bytecode knows it by


def pack(distribution: metadata.Distribution, folder: Path) -> None:
    """A wheel of an installed distribution, of the tags that it was installed by."""
    tags = [
        line.removeprefix("Tag: ").split("-")
        for line in (distribution.read_text("WHEEL") or "").splitlines()
        if line.startswith("Tag: ")
    ]
    tag = "-".join(".".join(dict.fromkeys(parts)) for parts in zip(*tags, strict=True))
    name = f"{distribution.name.replace('-', '_')}-{distribution.version}"
    record = ""
    with zipfile.ZipFile(folder / f"{name}-{tag}.whl", "w") as wheel:
        for file, source in files_of(distribution):
            if file.endswith((".dist-info/RECORD", ".pyc")):
                record = file if file.endswith("RECORD") else record
            else:
                wheel.write(source, file)
        wheel.writestr(record, "".join(f"{file},,\n" for file in [*wheel.namelist(), record]))


@contextmanager
def serving(*command: str | Path, cwd: Path, more: Mapping[str, str] | None = None) -> Iterator[None]:
    """The command, from when it says that it serves; then it is told to end, and ends with 0."""
    with subprocess.Popen(
        list(map(str, command)),
        cwd=cwd,
        env=environment() | dict(more or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], TIMEOUT_S)[0]
            assert process.stdout.readline().startswith(b"listening unix:")
            yield
        finally:
            process.terminate()
        assert process.wait(TIMEOUT_S) == 0


def test_fumehood_installs_the_sidecar_which_serves_and_calls(wheels: Path) -> None:
    with installed(wheels, "fumehood") as binaries:
        place = binaries.parents[1]
        assert "0.1.0" in run(binaries / "fumehood", "--version", cwd=place)
        run(binaries / "fumehood", "plugin", "new", "greeter", cwd=place)
        run(binaries / "fumehood", "plugin", "add", "greeter", "--yes", cwd=place)
        (place / "greeter").chmod(0o755)
        with serving(binaries / "fumehood", "serve", cwd=place):
            answer = run(binaries / "fumehood", "call", "greeter_hello", "names=Ada", "--json", cwd=place)
        assert "Ada" in json.dumps(json.loads(answer)["content"])


def test_uvx_runs_and_serves_without_an_installation(wheels: Path, tmp_path: Path) -> None:
    dependencies = tmp_path / "dependencies"
    dependencies.mkdir()
    for distribution in pinned():
        pack(distribution, dependencies)
    own = {f"UV_{what}": str(tmp_path / what.lower()) for what in ("CACHE_DIR", "TOOL_DIR", "TOOL_BIN_DIR")}
    uvx: list[str | Path] = [Path(sys.executable).with_name("uvx"), "--offline", "--no-index", "--python"]
    uvx += [sys.executable, "--find-links", wheels, "--find-links", dependencies]
    assert "0.1.0" in run(*uvx, "fumehood", "--version", cwd=tmp_path, more=own)
    with serving(*uvx, "fumehood", "serve", cwd=tmp_path, more=own):
        pass


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
