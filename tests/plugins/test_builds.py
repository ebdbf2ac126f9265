"""Build commands of plugins: run in a sandbox, on a copy of the folder, with granted hosts alone."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fumehood_sdk
import pytest

from tests.cli.command import Done, fumehood
from tests.sidecar import running_sidecar

MANIFEST = """
[plugin]
name = "built"
version = "1.0.0"
kind = "executable"
command = ["./server"]
build = ["sh", "build.sh"]

[[tool]]
name = "echo_back"
description = "Returns what it is given, by a program that a build has made."
side_effects = "none"
input_schema = '{"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": false}'
"""
SERVER = """#!/usr/bin/env python3
import sys
sys.path.insert(0, sys.path[0] + "/vendor")
from fumehood_sdk.adapters.cli import CliPlugin
from fumehood_sdk.runtime.serve import serve_plugin

schema = {"type": "object", "properties": {"text": {"type": "string"}}}
tool = {"name": "echo_back", "argv": ["{text}"], "input_schema": schema}
manifest = {"plugin": {"name": "built", "kind": "cli", "binary": "echo"}, "tool": [tool]}
programs = {"": "/bin/echo", "echo": "/bin/echo"}
sys.exit(serve_plugin(lambda hello: CliPlugin(manifest, "/tmp", programs, hello.max_frame_bytes)))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A plugin without its program: `build.sh` is each test's own."""
    folder = tmp_path / "built"
    folder.mkdir()
    (folder / "plugin.toml").write_text(MANIFEST)
    (folder / "server.in").write_text(SERVER)
    shutil.copytree(Path(fumehood_sdk.__file__).parent, folder / "sdk.in", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def served() -> Iterator[int]:
    """The port of an HTTP server of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"downloaded")

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def build(folder: Path, script: str, *, table: str = "", more: str = "") -> Done:
    """Have `fumehood plugin build` run this script."""
    (folder / "build.sh").write_text(f"set -e\n{script}\n")
    config = folder.parent / "fumehood.toml"
    config.write_text(f'{more}\n[[plugin]]\npath = "built"\n{table}\n')
    return fumehood("plugin", "build", "--config", config, "--json", folder=folder.parent)


def test_a_plugin_runs_from_what_its_build_made_of_a_copy_of_its_folder(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    done = build(folder, "mkdir vendor; cp -r sdk.in vendor/fumehood_sdk; cp server.in server; chmod 700 server")
    assert done.status == 0, done.stderr
    assert sorted(folder.rglob("*")) == sorted([*before, folder / "build.sh"])
    state = f"state_dir = {json.dumps(str(folder.parent / '.fumehood'))}"
    with running_sidecar([folder], server=state) as sidecar:
        called = fumehood("call", "echo_back", "text=Ada", address=sidecar.target)
    assert (called.status, "Ada" in called.stdout) == (0, True), called.stderr
    (folder / "server.in").write_text("")  # another folder, which nobody has built
    checked = fumehood("plugin", "check", folder, "--json", folder=folder.parent)
    (problem,) = checked.json["problems"]
    assert (problem["code"], problem["remedy"]) == ("environment_missing", f"fumehood plugin build {folder}")


def test_a_build_reaches_granted_hosts_and_its_copy_and_nothing_else(folder: Path, served: int) -> None:
    secret = folder.parent / "secret"
    secret.write_text("the operator's")
    script = f"""
        curl -sf http://127.0.0.1:{served}/a > got
        ! curl -sf http://127.0.0.1:{served + 1}/ 2> /dev/null
        ! curl -sf --noproxy '*' http://127.0.0.1:{served}/ 2> /dev/null
        ! cat {secret} 2> /dev/null
        ! touch {folder}/touched 2> /dev/null
        echo made > made
    """
    more = '[egress]\nallow_private = ["127.0.0.1"]'
    table = f'build_hosts = ["127.0.0.1:{served}"]'
    granted = build(folder, script, table=table, more=more)
    assert granted.status == 0, granted.stderr
    contents = Path(granted.json["plugins"][0]["environment"]) / "contents"
    assert ((contents / "got").read_text(), (contents / "made").read_text()) == ("downloaded", "made\n")
    assert not (folder / "touched").exists()
    denied = build(folder, script + "\n# once more", more=more)
    assert (denied.status, denied.error["code"]) == (1, "ENVIRONMENT_FAILED")
    other = build(folder, script.replace(f":{served}/a", f":{served + 1}/a"), table=table, more=more)
    assert f"refused GET http://127.0.0.1:{served + 1}/a" in other.error["message"]
    assert "build_hosts" in other.error["todo"]


def test_a_build_runs_scripts_of_the_folder_and_programs_that_it_has_made(folder: Path) -> None:
    manifest = folder / "plugin.toml"
    manifest.write_text(manifest.read_text().replace('["sh", "build.sh"]', '["./make"]'))
    (folder / "make").write_text(
        "#!/bin/sh\nset -e\ncp /bin/echo own\n./own made > made\n! cp own /tmp/own || ! /tmp/own\n"
    )
    (folder / "make").chmod(0o755)
    done = build(folder, "")
    assert done.status == 0, done.stderr
    contents = Path(done.json["plugins"][0]["environment"]) / "contents"
    assert (contents / "made").read_text() == "made\n"


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'no such compiler'; exit 3", "exited with status 3\nno such compiler"),
        ("ln -s /etc/passwd server", "server leads out of the folder"),
    ],
)
def test_a_build_that_fails_or_makes_what_no_copy_can_hold_leaves_nothing(
    folder: Path, script: str, problem: str
) -> None:
    done = build(folder, script)
    assert (done.status, problem in done.error["message"]) == (1, True), done.stderr
    left = (folder.parent / ".fumehood" / "environments").iterdir()
    assert [each for each in left if each.suffix != ".lock"] == []


def test_npm_installs_what_its_lock_names(folder: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("needs npm: `make setup` gets it")
    (folder / "dep").mkdir()
    (folder / "dep" / "package.json").write_text('{"name": "dep", "version": "1.0.0", "bin": {"dep": "dep.js"}}')
    (folder / "dep" / "dep.js").write_text("#!/usr/bin/env node\n")
    package = {"name": "built", "version": "1.0.0", "dependencies": {"dep": "file:dep"}}
    (folder / "package.json").write_text(json.dumps(package))
    link = {"resolved": "dep", "link": True}
    packages = {"": package, "dep": {"version": "1.0.0"}, "node_modules/dep": link}
    lock = {"name": "built", "version": "1.0.0", "lockfileVersion": 3, "requires": True, "packages": packages}
    (folder / "package-lock.json").write_text(json.dumps(lock))
    manifest = folder / "plugin.toml"
    manifest.write_text(manifest.read_text().replace('["sh", "build.sh"]', '["npm", "ci"]'))
    done = build(folder, "")
    assert done.status == 0, done.stderr
    contents = Path(done.json["plugins"][0]["environment"]) / "contents"
    assert (contents / "node_modules" / "dep" / "package.json").is_file()
    assert not (folder / "node_modules").exists()
