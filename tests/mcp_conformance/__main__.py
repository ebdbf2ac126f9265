"""Runs the official conformance suite of the Model Context Protocol against a sidecar's MCP server.

Exit status 1: a scenario has failed that is not listed as left, or one that is has passed; or of one that passes in
part, another check has failed or passed than is listed; or docs/mcp-server.md lists others.
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

from .left import PARTS, RUNS, documented, left_scenarios

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
tools = ["test_input_required_result_tampered_state"]
self_approval = true
[[caller]]
name = "conformance"
tools = ["*"]
approve = ["*"]
"""


def main() -> int:
    """Run all, and tell what passed."""
    # The suite leaves questions unanswered, whose calls wait on.
    grants = 'max_side_effects = "write"\nmax_workers = 32'
    plugins = [(HERE / "plugins" / name, grants) for name in ("everything", "declared", "asking")]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    wrong: list[str] = []
    if documented() != left_scenarios():
        wrong.append(f"docs/mcp-server.md differs by {sorted(documented() ^ left_scenarios())}")
    with running_sidecar(plugins, more=CONFIG.format(port=port)) as sidecar:
        sidecar.logged(event="mcp_serving")
        for suite, options, left in RUNS:
            found = _run(sidecar, f"http://localhost:{port}/mcp", suite, options)
            passed = {name for name, failed in found.items() if not failed}
            _say(f"{suite} {' '.join(options)}: {len(passed)} passed, {len(found) - len(passed)} left")
            for name, failed in sorted(found.items()):
                if name in passed:
                    _say(f"  passed  {name}")
                else:
                    _say(f"  left    {name}: {left.get(name, 'NOT LISTED')} ({', '.join(sorted(failed))})")
                if not failed and name in left:
                    wrong.append(f"{suite}: {name} passes, and is listed as left")
                elif failed and name not in left:
                    wrong.append(f"{suite}: {name} fails, and is not listed as left")
                elif failed != PARTS.get(name, failed):
                    wrong.append(f"{suite}: of {name} other checks fail than are listed: {sorted(failed)}")
            wrong += [f"{suite}: {name} is listed as left, and was not run" for name in left.keys() - found.keys()]
    for each in wrong:
        _say(f"WRONG: {each}")
    return 1 if wrong else 0


def _run(sidecar: Sidecar, url: str, suite: str, options: Sequence[str]) -> dict[str, frozenset[str]]:
    """The scenarios that were run, each with the checks that failed."""
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
    return {_scenario(name): _failed(checks) for name, checks in results.items()}


def _failed(checks: Sequence[Mapping[str, object]]) -> frozenset[str]:
    return frozenset(str(each["id"]) for each in checks if each["status"] == "FAILURE")


def _scenario(folder_name: str) -> str:
    """`server-NAME-2026-…` as the suite names the folder of a scenario's results."""
    return re.sub(r"-\d{4}-\d\d-\d\dT.*", "", folder_name.removeprefix("server-"))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
