"""Whoever replaces a symlink decides what the next start runs: none by which the sidecar was named is granted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import environment

SERVER = '[server]\nlisten = ["127.0.0.1:0"]\nallow_anonymous = true\n'
GRANT = SERVER + '[[plugin]]\npath = "dice"\nmax_side_effects = "write"\nwrite = ["{}"]\n'
LOADING = """
import json, sys
from pathlib import Path
from fumehood_server.config import load_config
from fumehood_server.errors import ConfigError
found = {}
for name in sys.argv[1:]:
    try:
        load_config(Path(name, "fumehood.toml"))
        found[name] = ""
    except ConfigError as error:
        found[name] = error.problem
print(json.dumps(found))
"""
VARIABLES = {
    "PYTHONPATH": "lib",
    "PATH": "bin",
    "LD_LIBRARY_PATH": "lib",
    "LD_AUDIT": "lib/audit.so",
    "TMPDIR": "tmp",
    "SSL_CERT_FILE": "certificates/ca.pem",
    "SSL_CERT_DIR": "certificates",
    "NETRC": "netrc",
    "PIP_CONFIG_FILE": "pip.conf",
    "UV_CONFIG_FILE": "uv.toml",
    "HOME": "",
    "XDG_CONFIG_HOME": "config",
}
"""And what it names in the folder that a symlink leads to."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("lib", "bin", "tmp", "certificates", "config", "project/bin"):
        (tmp_path / "kept" / name).mkdir(parents=True)
    script = tmp_path / "kept/bin/fumehood"
    script.write_text(f"#!{sys.executable}\nfrom fumehood_server.cli import main\nmain()\n")
    script.chmod(0o755)
    return tmp_path


def linked(folder: Path, name: str, target: str | Path) -> Path:
    """A symlink in a folder of its own, which a configuration grants for writing."""
    link = folder / f"granted-{name}" / "current"
    link.parent.mkdir()
    link.symlink_to(target)
    (folder / name).mkdir()
    (folder / name / "dice").mkdir()
    (folder / name / "fumehood.toml").write_text(GRANT.format(link.parent))
    return link


def problems(
    folder: Path, names: list[str], env: dict[str, str], python: str | Path = sys.executable, cwd: Path | None = None
) -> dict[str, str]:
    """Why each configuration is refused, by a process that was started so; empty where it is taken."""
    command = [str(python), "-c", LOADING, *(str(folder / each) for each in names)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=env, cwd=cwd or folder)
    return {Path(name).name: problem for name, problem in json.loads(done.stdout).items()}


def test_no_symlink_to_what_a_variable_names_is_granted_and_one_that_nobody_named_is(folder: Path) -> None:
    links = {name: linked(folder, name, folder / "kept") for name in (*VARIABLES, "uv", "none")}
    (folder / "programs").mkdir()
    (folder / "programs/uv").symlink_to(
        links["uv"] / "bin/fumehood"
    )  # PATH's folder can't be written, its target could
    env = environment()
    for name, place in VARIABLES.items():
        kept = {"PATH": f":{folder}/programs:{os.environ['PATH']}", "PYTHONPATH": f":{os.pathsep.join(sys.path)}"}
        env[name] = f"{links[name]}/{place}{kept.get(name, '')}".rstrip("/")
    found = problems(folder, list(links), env)
    assert found.pop("none") == ""
    assert [name for name, problem in found.items() if "overlaps a symlink to" not in problem] == []
    assert len(found) == len(VARIABLES) + 1
    untouched = problems(folder, list(links), environment())
    assert untouched == dict.fromkeys(links, ""), "each can be granted where no variable names it"


def test_no_symlink_to_the_interpreter_s_environment_is_granted(folder: Path) -> None:
    link = linked(folder, "environment", sys.prefix)
    python = link / Path(sys.executable).relative_to(sys.prefix)
    found = problems(folder, ["environment"], environment(), python)
    assert "a symlink to the sidecar's own code" in found["environment"]
    assert problems(folder, ["environment"], environment()) == {"environment": ""}, "it was not started by it"


def test_a_symlink_to_the_current_folder_that_is_imported_from_is_not_granted(folder: Path) -> None:
    link = linked(folder, "imported", folder / "kept")
    env = environment(more={"PYTHONPATH": os.pathsep.join([str(link), *sys.path])})
    assert "a symlink to" in problems(folder, ["imported"], env, cwd=folder / "kept")["imported"]
    env["PYTHONPATH"] = os.pathsep.join([str(folder / "kept"), *sys.path])
    assert problems(folder, ["imported"], env, cwd=folder / "kept") == {"imported": ""}


@pytest.mark.parametrize("is_relative", [False, True])
def test_serve_refuses_to_grant_the_symlink_that_it_was_started_by(folder: Path, *, is_relative: bool) -> None:
    link = linked(folder, "started", folder / "kept")
    config = folder / "started/fumehood.toml"
    env = environment(more={"PYTHONPATH": os.pathsep.join(sys.path), "PWD": str(link)})
    script = "bin/fumehood" if is_relative else str(link / "bin/fumehood")

    def serve() -> subprocess.Popen[str]:
        command = [script, "serve", "--config", str(config)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=link)

    with serve() as refused:
        _, said = refused.communicate(timeout=60)
    assert refused.returncode == 2, said
    assert f'overlaps a symlink to the sidecar\'s own code, "{link}"' in said
    (folder / "data").mkdir()
    config.write_text(GRANT.format(folder / "data"))
    with serve() as serving:
        assert serving.stdout
        line = serving.stdout.readline()
        serving.terminate()
        _, said = serving.communicate(timeout=60)
    assert line.startswith("listening "), said
    assert serving.returncode == 0
