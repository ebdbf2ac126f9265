"""Runs the official conformance suite of the Model Context Protocol against a sidecar's MCP server.

A scenario passes if one of its own checks succeeds, and none is failed, warned of, skipped, or of an empty list.

Exit status 1: a scenario has failed that is not listed as left, or one that is has passed; or of one that passes in
part, other checks are left than are listed; or one of the suite's list has no result; or docs/mcp-server.md lists
others.
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
from typing import Any

from tests.callers.support import token_of
from tests.sidecar import Sidecar, running_sidecar

from .left import PARTS, RUNS, documented, left_scenarios

HERE = Path(__file__).parent
RUN_TIMEOUT_S = 300
_ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}
_OF_ALL = "wire-schema-valid"
"""A check that the newest alpha adds to every scenario: it says nothing of what the scenario is about."""

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
    plugins = [(HERE / "plugins" / name, grants) for name in ("everything", "declared", "asking", "naming")]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    wrong: list[str] = []
    if documented() != left_scenarios():
        wrong.append(f"docs/mcp-server.md differs by {sorted(documented() ^ left_scenarios())}")
    with running_sidecar(plugins, more=CONFIG.format(port=port)) as sidecar:
        sidecar.logged(event="mcp_serving")
        for suite, options, left in RUNS:
            found = _run(sidecar, f"http://localhost:{port}/mcp", suite, options)
            passed = {name for name, unmet in found.items() if not unmet}
            _say(f"{suite} {' '.join(options)}: {len(passed)} passed, {len(found) - len(passed)} left")
            for name, unmet in sorted(found.items()):
                if name in passed:
                    _say(f"  passed  {name}")
                else:
                    _say(f"  left    {name}: {left.get(name, 'NOT LISTED')} ({', '.join(sorted(unmet))})")
                if not unmet and name in left:
                    wrong.append(f"{suite}: {name} passes, and is listed as left")
                elif unmet and name not in left:
                    wrong.append(f"{suite}: {name} fails, and is not listed as left")
                elif unmet != PARTS.get(name, unmet):
                    wrong.append(f"{suite}: of {name} other checks are left than are listed: {sorted(unmet)}")
            planned = _planned(suite, options)
            wrong += [f"{suite}: {name} has no result" for name in planned - found.keys()]
            wrong += [f"{suite}: {name} is not in the suite's list" for name in found.keys() - planned]
            wrong += [f"{suite}: {name} is listed as left, and was not run" for name in left.keys() - found.keys()]
    for each in wrong:
        _say(f"WRONG: {each}")
    return 1 if wrong else 0


def _run(sidecar: Sidecar, url: str, suite: str, options: Sequence[str]) -> dict[str, frozenset[str]]:
    """The scenarios that were run, each with the checks that are left."""
    token = token_of(sidecar.folder, "conformance")
    with tempfile.TemporaryDirectory() as folder:
        # It ends with status 1 as soon as one check fails: a scenario that threw has no file.
        done = _suite(suite, "server", "--url", url, *options, "-o", folder, token=token)
        results = {each.parent.name: json.loads(each.read_text()) for each in Path(folder).glob("*/checks.json")}
    if not results or done.returncode not in {0, 1}:
        raise SystemExit(f"the suite did not run: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return {_scenario(name): _unmet(checks) for name, checks in results.items()}


def _planned(suite: str, options: Sequence[str]) -> frozenset[str]:
    """The scenarios of servers that the suite's own list has, by these options; those that are not scored as well."""
    requirements = options if options[0] == "--requirements" else ()
    servers, _, others = _suite(suite, "list", "--server", *requirements).stdout.partition("\nClient scenarios")
    named = re.findall(r"^ +- (\S+)", servers, re.MULTILINE)
    return frozenset(named + re.findall(r"^ +- (\S+) \[server\]", others, re.MULTILINE))


def _suite(suite: str, *arguments: str, token: str = "") -> subprocess.CompletedProcess[str]:
    """One command of a suite's program, to its end."""
    node = HERE / "node_modules" / f"node-linux-{_ARCHITECTURES[platform.machine()]}" / "bin" / "node"
    program = HERE / "node_modules" / f"conformance-{suite}" / "dist" / "index.js"
    command: list[str | Path] = [node, "--import", HERE / "with_token.mjs", program, *arguments]
    environment = {**os.environ, "FUMEHOOD_TOKEN": token}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)


def _unmet(checks: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The ids of the checks that are left, and `no success` where no check of the scenario's own succeeds."""
    unmet = {str(each["id"]) for each in checks if each["status"] not in {"SUCCESS", "INFO"} or _is_of_nothing(each)}
    if not any(each["status"] == "SUCCESS" and each["id"] != _OF_ALL for each in checks):
        unmet.add("no success")
    return frozenset(unmet)


def _is_of_nothing(check: Mapping[str, Any]) -> bool:
    """Whether a list was found to be well formed that has no entries."""
    details = check.get("details") or {}
    return 0 in {details.get("resourceCount"), details.get("promptCount")}


def _scenario(folder_name: str) -> str:
    """`server-NAME-2026-…` as the suite names the folder of a scenario's results."""
    return re.sub(r"-\d{4}-\d\d-\d\dT.*", "", folder_name.removeprefix("server-"))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
