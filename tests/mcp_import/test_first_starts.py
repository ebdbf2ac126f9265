"""What an import says of a server's first start and of later ones: the time that it has, and what can be mended."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from fumehood_server.cli.mcp_import.node_version import old_node
from fumehood_server.config.config import SandboxConfig

from tests.cli.command import fumehood
from tests.mcp_import import servers
from tests.mcp_import.npm_registry import npm_registry
from tests.mcp_import.own_server import IMPORT, import_servers, write_script, write_servers

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: `make setup` gets it")
FORMED = "Aa0" * 12
"""Looks like a secret."""
DOWNLOADS = r"""
const [host, port] = process.env.HTTPS_PROXY.replace("http://", "").split(":");
const socket = require("net").connect(Number(port), host);
socket.on("data", (text) => process.exit(String(text).includes(" 200 ") ? 0 : 1));
socket.write("CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n");
"""


def failure(folder: Path, script: str, **variables: str) -> dict[str, Any]:
    write_servers(folder, {"broken": variables})
    write_script(folder, script)
    (found,) = fumehood(*IMPORT, folder=folder).json["servers"]
    problem: dict[str, Any] = found["problem"]
    assert problem["code"] == "not_started", found
    return problem


def test_a_sidecar_of_an_imported_configuration_gives_servers_as_long_to_start_as_the_import(tmp_path: Path) -> None:
    (found,) = import_servers(tmp_path, {"who": {}})
    config = tomllib.loads((tmp_path / "fumehood.toml").read_text())
    assert (config["server"]["start_timeout_s"], config["server"]["listen"]) == (60, ["unix:.fumehood/fumehood.sock"])
    assert not [each for each in found["notes"] if "start_timeout_s" in each]


def test_a_configuration_with_less_time_is_left_and_told(tmp_path: Path) -> None:
    config = tmp_path / "fumehood.toml"
    config.write_text("[server]\nstart_timeout_s = 20\n")
    (found,) = import_servers(tmp_path, {"who": {}})
    (note,) = [each for each in found["notes"] if "start_timeout_s" in each]
    assert "gives a server 20 s to start, where an import gives it 60" in note
    assert "start_timeout_s = 20" in config.read_text()


def test_a_server_that_does_not_start_is_said_how_it_was_asked(tmp_path: Path) -> None:
    problem = failure(tmp_path, "raise SystemExit('no network')\n")
    assert "asked for its tools without network, with placeholders for secrets" in problem["todo"]
    assert "`--list-with-grants broken` asks it with that" in problem["todo"]
    assert "--plain" not in problem["todo"]
    assert "open_files" not in problem["todo"]


def test_a_value_that_counts_as_a_secret_by_its_look_alone_is_named_where_the_server_does_not_start(
    tmp_path: Path,
) -> None:
    problem = failure(tmp_path, "raise SystemExit('no such model')\n", MODEL=FORMED, API_KEY=FORMED)
    assert "MODEL counts as a secret by the look of its value alone: --plain MODEL, if it is none" in problem["todo"]
    assert FORMED not in str(problem)
    assert "API_KEY" not in problem["todo"]


def test_a_server_that_opens_too_many_files_is_said_which_limit_it_is(tmp_path: Path) -> None:
    problem = failure(tmp_path, "held = []\nwhile True:\n    held.append(open('/dev/null'))\n")
    assert "`open_files` in [limits.default] of fumehood.toml" in problem["todo"], problem


def test_a_server_that_opens_many_files_is_imported_with_the_limit_that_is_named(tmp_path: Path) -> None:
    write_servers(tmp_path, {"many": {}})
    write_script(tmp_path, "held = [open('/dev/null') for _ in range(1500)]\n" + servers.PYTHON + "\n\nrun()\n")
    (tmp_path / "fumehood.toml").write_text("[limits.default]\nopen_files = 4096\n")
    (found,) = fumehood(*IMPORT, folder=tmp_path).json["servers"]
    assert found["status"] == "imported", found


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("v20.20.2", True), ("v22.20.0", True), ("v22.21.0", False), ("v23.11.0", True), ("v24.0.0", False), ("x", False)],
)
def test_a_node_whose_fetch_looks_at_no_proxy_is_told_by_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_old: bool
) -> None:
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\necho {version}\n")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert old_node("node", tmp_path, SandboxConfig()) == (version if is_old else "")
    assert not old_node("python3", tmp_path, SandboxConfig())


@pytest.mark.parametrize(("version", "is_old"), [("v20.20.2", True), ("v24.0.0", False), ("x", False)])
def test_a_node_by_its_path_is_told_by_its_version_and_asked_in_a_sandbox(
    tmp_path: Path, version: str, is_old: bool
) -> None:
    node, ran = tmp_path / "bin" / "node", tmp_path / "ran"
    node.parent.mkdir()
    for path in (node, node.with_name("other")):
        path.write_text(f"#!/bin/sh\ntouch {ran} 2> /dev/null\necho {version}\n")
        path.chmod(0o755)
    for program in ("./bin/node", str(node)):
        assert old_node(program, tmp_path, SandboxConfig()) == (version if is_old else "")
    assert not old_node("./bin/other", tmp_path, SandboxConfig())
    assert not old_node("./bin/nowhere/node", tmp_path, SandboxConfig())
    assert not ran.exists()
    subprocess.run([node], check=True, stdout=subprocess.DEVNULL)  # does what the sandbox kept it from
    assert ran.exists()


@pytest.mark.parametrize("is_copied", [False, True], ids=["of the PATH", "copied"])
@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_a_server_with_tools_that_reach_out_is_said_to_run_with_an_old_node(tmp_path: Path, is_copied: bool) -> None:
    script = write_script(tmp_path, servers.NODE).rename(tmp_path / "code" / "server.js")
    node = "node"
    if is_copied:
        node = str(tmp_path / "own" / "node")
        (tmp_path / "own").mkdir()
        shutil.copy(Path(shutil.which("node") or "").resolve(), node)
    table = {script.stem: {"command": node, "args": [str(script)]}}
    (tmp_path / "mcp.json").write_text(json.dumps({"servers": table}))
    (found,) = fumehood(*IMPORT, folder=tmp_path).json["servers"]
    assert found["status"] == "imported", found
    notes = [each for each in found["notes"] if "fetch and https reach no granted host" in each]
    assert bool(notes) is bool(old_node("node", tmp_path, SandboxConfig()))
    assert ("./bin/node" in (Path(found["folder"]) / "plugin.toml").read_text()) is is_copied


@needs_npm
@pytest.mark.slow("installs a server by npm")
def test_a_server_whose_installation_downloads_is_imported_as_its_refusal_says(tmp_path: Path) -> None:
    with npm_registry() as registry, npm_registry() as other:
        files = {"index.js": servers.NODE, "get.js": DOWNLOADS % f"127.0.0.1:{other.port}"}
        scripts = {"install": "node get.js"}
        registry.publish("loads", "1.0.0", files, bin="index.js", scripts=scripts, hasInstallScript=True)
        config = tmp_path / "fumehood.toml"
        config.write_text('[egress]\nallow_private = ["127.0.0.1"]\n')
        (tmp_path / "mcp.json").write_text('{"mcpServers": {"loads": {"command": "npx", "args": ["-y", "loads"]}}}')
        (found,) = fumehood(*IMPORT, folder=tmp_path, more=registry.environment).json["servers"]
        assert found["status"] == "failed", found
        assert f"127.0.0.1:{other.port}" in found["problem"]["message"]
        todo, _, lines = found["problem"]["todo"].partition(":\n")
        assert f"write a [[plugin]] for it into {config}" in todo
        with tempfile.TemporaryDirectory(prefix="fh-") as state:
            more = {**registry.environment, "XDG_STATE_HOME": state}
            wrapped = fumehood("mcp", "wrap", "--", "npx", "-y", "loads", folder=tmp_path, stdin="", more=more)
        assert (wrapped.status, "no option here grants" in wrapped.stderr) == (1, True), wrapped.stderr
        config.write_text(config.read_text() + lines.replace("NAME:PORT", f"127.0.0.1:{other.port}"))
        (found,) = fumehood(*IMPORT, folder=tmp_path, more=registry.environment).json["servers"]
        assert found["status"] == "updated", found
        assert [each["name"] for each in found["tools"] if each["within_grants"]] == ["list_notes"]


def test_a_server_that_is_named_a_folder_and_others_within_it_starts(tmp_path: Path) -> None:
    script = write_script(
        tmp_path, "import os, sys\nassert all(map(os.path.isdir, sys.argv[1:]))\n" + servers.PYTHON + "\nrun()\n"
    )
    outer = tmp_path / "outer"
    for name in ("one", "deep/two"):
        (outer / name).mkdir(parents=True)
    named = [str(outer / "one"), str(outer), str(outer / "deep" / "two")]
    entry = {"command": "python3", "args": [str(script), *named]}
    (tmp_path / "mcp.json").write_text(json.dumps({"servers": {"nested": entry}}))
    (found,) = fumehood(*IMPORT, folder=tmp_path).json["servers"]
    assert found["status"] == "imported", found
    assert [each["name"] for each in found["tools"]] == ["who_am_i"]
