"""`make clients`: the programs of docs/clients.md in Java and Rust, and grpcurl. Maven, cargo and Go download for them.

Not among the tests that `make test` runs: the first build takes minutes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.test_clients import CLIENTS, DICE
from tests.sidecar import Sidecar, running_sidecar

BUILD_TIMEOUT_S = 900
GRPCURL = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3"

pytestmark = pytest.mark.timeout(2 * BUILD_TIMEOUT_S)


@pytest.fixture(scope="module")
def sidecar() -> Iterator[Sidecar]:
    with running_sidecar([DICE], server='listen = ["unix:s", "127.0.0.1:0"]') as running:
        yield running


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_rolled(text: str) -> None:
    assert re.fullmatch(r'rolled ([2-9]|1[0-2]|\{"total":.*\})\n', text), text


def test_the_java_program_calls(sidecar: Sidecar, tmp_path: Path) -> None:
    project = tmp_path / "java"
    shutil.copytree(CLIENTS / "java", project, ignore=shutil.ignore_patterns("target"))
    protos = f"-Dprotos={CLIENTS.parents[1] / 'protos'}"
    run("mvn", "-B", "-q", protos, "compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath", cwd=project)
    classes = f"target/classes:{(project / 'classpath').read_text()}"
    for target in sidecar.targets:
        assert_rolled(run("java", "-cp", classes, "Call", target, cwd=project))


def test_the_rust_program_calls(sidecar: Sidecar) -> None:
    project = CLIENTS / "rust"
    protoc = str(Path(sys.executable).with_name("python-grpc-tools-protoc"))
    unix, tcp = sidecar.targets
    for target in (unix, f"http://{tcp}"):
        assert_rolled(run("cargo", "run", "--quiet", "--", target, cwd=project, PROTOC=protoc))


def test_the_grpcurl_lines_work(sidecar: Sidecar, tmp_path: Path) -> None:
    run("go", "install", GRPCURL, cwd=tmp_path, GOBIN=str(tmp_path), GOTOOLCHAIN="auto")
    page = (CLIENTS.parents[1] / "docs/clients.md").read_text()
    (lines,) = re.findall(r"^```sh\n(grpcurl .*?)^```$", page, re.MULTILINE | re.DOTALL)
    socket = Path(sidecar.target.removeprefix("unix:"))
    lines = lines.replace("$PWD/examples/.fumehood/fumehood.sock", str(socket)).replace("grpcurl ", "./grpcurl ")
    said = run("bash", "-eu", "-c", lines, cwd=tmp_path)
    assert '"name": "roll_dice"' in said
    result = json.loads(said[said.rindex("\n{\n") :])["result"]
    assert not {"is_error", "isError", "error"} & result.keys(), result
    assert 2 <= json.loads(result.get("details_json") or result["detailsJson"])["total"] <= 12
