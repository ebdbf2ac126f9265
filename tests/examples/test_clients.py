"""The example clients as programs of their own against the real sidecar: over a unix socket and over TCP."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sidecar import Sidecar, running_sidecar

EXAMPLES = Path(__file__).parents[2] / "examples"
DICE, TEXT = EXAMPLES / "plugins" / "dice", EXAMPLES / "plugins" / "text"
CLIENTS = EXAMPLES / "clients"
RUN_TIMEOUT_S = 60
BUILD_TIMEOUT_S = 280
"""From an empty build cache, on a busy machine."""

EXPECTED = (
    r"tools: diff_text, roll_dice, slow_count, word_count",
    r"roll_dice: \[[1-6],? ?[1-6]\] makes \d+, behind .*\blandlock\b.*\bseccomp\b.*",
    r"slow_count: started",
    r"slow_count: counted 1 \(1 of 3\)",
    r"slow_count: counted 2 \(2 of 3\)",
    r"slow_count: counted 3 \(3 of 3\)",
    r'slow_count: finished, \{"counted":3\}',
    r"timeout: TOOL_TIMEOUT by the request after 0\.3 s",
    r"deadline: (DEADLINE_EXCEEDED|CANCELLED_TIMEOUT)",  # by the client's clock, or by the sidecar's
    r"bad arguments: TOOL_EXECUTION_FAILED, invalid_arguments",
    r"  /count: .+ \(maximum\)",
    r"  /sides: .+ \(enum\)",
    r"unknown tool: TOOL_NOT_FOUND: .*roll_dice.*",
    r"bad request: INVALID_ARGUMENT, REQUEST_INVALID: .+",
    r"session: 20 finished, 1 refused \(REQUEST_INVALID\), 1 cancelled \(CANCELLED_SIGNAL\)",
    r"all as expected",
)
"""The same lines from each client."""


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        shutil.which(program) is None and "CI" not in os.environ, reason=f"{program} is not here: run `make setup`"
    )


LANGUAGES = [
    "python",
    pytest.param("node", marks=needs("node")),
    pytest.param(
        "go",
        marks=[
            needs("go"),
            pytest.mark.timeout(BUILD_TIMEOUT_S + RUN_TIMEOUT_S),
            pytest.mark.slow("builds gRPC, half a minute from an empty cache"),
        ],
    ),
]


def go_environment() -> dict[str, str]:
    """Nothing is downloaded by a test: `make setup` did."""
    return os.environ | {"GOPROXY": "off", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local"}


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """How a client is started, built where it needs to be."""
    built = tmp_path_factory.mktemp("clients") / "go"

    def of(language: str) -> list[str]:
        if language == "python":
            return [sys.executable, str(CLIENTS / "python" / "client.py")]
        if language == "node":
            return ["node", str(CLIENTS / "node" / "client.js")]
        if not built.exists():
            run_go(["go", "build", "-o", str(built), "."], {})
        return [str(built)]

    return of


@pytest.fixture(scope="module")
def sidecar() -> Iterator[Sidecar]:
    with running_sidecar([DICE, TEXT], server='listen = ["unix:fumehood.sock", "127.0.0.1:0"]') as running:
        yield running


@pytest.fixture(scope="module")
def without_text() -> Iterator[Sidecar]:
    with running_sidecar([DICE]) as running:
        yield running


def run(
    command: list[str],
    *,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    timeout_s: float = RUN_TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        check=False,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def run_go(command: list[str], env: dict[str, str]) -> None:
    done = run(command, cwd=CLIENTS / "go", env=go_environment() | env, timeout_s=BUILD_TIMEOUT_S)
    assert done.returncode == 0, done.stderr


def assert_all_as_expected(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == len(EXPECTED), done.stdout
    for line, pattern in zip(lines, EXPECTED, strict=True):
        assert re.fullmatch(pattern, line), line


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_client_meets_what_the_docs_promise(
    language: str, command: Callable[[str], list[str]], sidecar: Sidecar
) -> None:
    unix, tcp = sidecar.targets
    assert_all_as_expected(run([*command(language), unix]))
    assert_all_as_expected(run(command(language), env=os.environ | {"FUMEHOOD_ADDRESS": tcp}))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_client_tells_a_surprise_by_its_exit_status(
    language: str, command: Callable[[str], list[str]], without_text: Sidecar, tmp_path: Path
) -> None:
    nobody = run([*command(language), f"unix:{tmp_path}/nobody.sock"])
    assert nobody.returncode == 1
    assert nobody.stderr.startswith("surprise: ")

    lacking = run([*command(language), without_text.target])
    assert lacking.returncode == 1
    assert lacking.stderr == "surprise: the plugins dice and text are needed\n"


@pytest.mark.slow("builds generators in Go")
@needs("go")
@pytest.mark.timeout(BUILD_TIMEOUT_S)
def test_the_go_code_is_what_the_protos_generate() -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run_go(["./generate.sh", "--check"], {"PATH": path})
