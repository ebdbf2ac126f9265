"""Runs the official conformance suite of the Model Context Protocol against a sidecar's MCP server.

Exit status 1: a scenario has failed that is not listed as left, or one that is has passed.
"""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.callers.support import token_of
from tests.sidecar import Sidecar, running_sidecar

from .left import RUNS

HERE = Path(__file__).parent
RUN_TIMEOUT_S = 300
_ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}

# The suite calls by `localhost`, and as a page of that origin.
CONFIG = """
[mcp]
listen = "127.0.0.1:{port}"
allowed_origins = ["http://localhost:{port}", "http://127.0.0.1:{port}"]
[[policy.rule]]
name = "own-word"
permission = "require_approval"
tools = ["test_input_required_*"]
self_approval = true
[[caller]]
name = "conformance"
tools = ["*"]
approve = ["*"]
"""


def main() -> int:
    """Run all, and tell what passed."""
    plugins = [(HERE / "plugins" / name, 'max_side_effects = "write"') for name in ("everything", "declared")]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    wrong: list[str] = []
    with running_sidecar(plugins, more=CONFIG.format(port=port)) as sidecar:
        sidecar.logged(event="mcp_serving")
        for suite, options, left in RUNS:
            failed, passed = _run(sidecar, f"http://localhost:{port}/mcp", suite, options)
            _say(f"{suite} {' '.join(options)}: {len(passed)} passed, {len(failed)} left")
            for name in sorted(passed):
                _say(f"  passed  {name}")
            for name in sorted(failed):
                _say(f"  left    {name}: {left.get(name, 'NOT LISTED')}")
            wrong += [f"{suite}: {name} fails, and is not listed as left" for name in failed - left.keys()]
            wrong += [f"{suite}: {name} passes, and is listed as left" for name in passed & left.keys()]
    for each in wrong:
        _say(f"WRONG: {each}")
    return 1 if wrong else 0


def _run(sidecar: Sidecar, url: str, suite: str, options: Sequence[str]) -> tuple[set[str], set[str]]:
    """The scenarios that failed, and those that passed."""
    node = HERE / "node_modules" / f"node-linux-{_ARCHITECTURES[platform.machine()]}" / "bin" / "node"
    program = HERE / "node_modules" / f"conformance-{suite}" / "dist" / "index.js"
    environment = {**os.environ, "FUMEHOOD_TOKEN": token_of(sidecar.folder, "conformance")}
    with tempfile.TemporaryDirectory() as folder:
        command: list[str | Path] = [
            node,
            "--import",
            HERE / "with_token.mjs",
            program,
            "server",
            "--url",
            url,
            *options,
            "-o",
            folder,
        ]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
        )
        results = {each.parent.name: json.loads(each.read_text()) for each in Path(folder).glob("*/checks.json")}
    if not results:
        raise SystemExit(f"the suite did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    failed: set[str] = set()
    passed: set[str] = set()
    for folder_name, checks in results.items():
        (failed if _has_failed(checks) else passed).add(_scenario(folder_name))
    return failed, passed


def _has_failed(checks: Sequence[Mapping[str, object]]) -> bool:
    return any(each["status"] == "FAILURE" for each in checks)


def _scenario(folder_name: str) -> str:
    """`server-NAME-2026-…` as the suite names the folder of a scenario's results."""
    return re.sub(r"-\d{4}-\d\d-\d\dT.*", "", folder_name.removeprefix("server-"))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
