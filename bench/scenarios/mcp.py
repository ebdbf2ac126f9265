"""A hosted MCP server, sandboxed and called through gRPC, beside its own SDK's client on its stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.harness.mcp_plugins import PYTHON, TYPESCRIPT, python_config, typescript_config
from bench.harness.processes import python, read_line, running
from bench.harness.report import Report, Row, Target
from bench.harness.rounds import Effort, Entrant, Pair, Rounds, ratio, take_turns
from bench.harness.sidecar import Sidecar, echo_config, sidecar, until_serving
from bench.scenarios.ready import spec_of, worker_pools

ISSUE = 14
"""Whose targets these are, counted like `report.ISSUE`."""
PLUGIN = "a Python plugin's echo, CallTool"
"""What a call costs that no MCP server is behind."""
_SERVERS = {"TypeScript": ("node", str(TYPESCRIPT / "server.mjs")), "Python": (sys.executable, str(PYTHON))}
_HANDSHAKE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1.0.0"},
}
_NOTE = (
    "hosted servers go on over all rounds, and V8 goes on compiling: the TypeScript SDK's own are measured after 20"
    " times as many calls. The tool is of level read: write and external wait for their intent to be on the disk as"
    " well. Starts are of a server that lists its tools, bare by initialize and tools/list on its pipes."
)


async def measure(effort: Effort, folder: Path) -> Report:
    """Measure latency and rate turn by turn, then starts."""
    configs = {
        "TypeScript": typescript_config(folder / "of-typescript"),
        "Python": await asyncio.to_thread(python_config, folder / "of-python"),
    }
    report = Report(notes=[_NOTE])
    own = echo_config(folder / "own")
    async with (
        sidecar(configs["TypeScript"]) as typescript,
        sidecar(configs["Python"]) as python_,
        sidecar(own) as plugin,
    ):
        hosts = {"TypeScript": typescript, "Python": python_}
        for host in (*hosts.values(), plugin):
            await until_serving(host.address)
        beside = Entrant(PLUGIN, python("bench.clients.fumehood", "unary", plugin.address, str(folder)))
        taken = await take_turns([*_entrants(hosts, folder), beside], effort)
    report.add(rows=[_row(name, pairs) for name, pairs in taken.items()])
    for language, config in configs.items():
        report.add(targets=_targets(language, taken))
        await _starts(report, language, config, effort)
    return report


def _entrants(hosts: dict[str, Sidecar], folder: Path) -> list[Entrant]:
    entrants = []
    for language, host in hosts.items():
        if language == "Python":
            entrants.append(Entrant(_sdk(language), python("bench.clients.mcp_python")))
        else:
            entrants.append(Entrant(_sdk(language), ("node", str(TYPESCRIPT / "client.mjs")), warmth=20))
        entrants += (
            Entrant(_hosted(language, way), python("bench.clients.fumehood", way, host.address, str(folder)))
            for way in ("unary", "session")
        )
    return entrants


def _sdk(language: str) -> str:
    return f"MCP SDK, {language}"


def _hosted(language: str, way: str) -> str:
    return f"{language} server hosted, {'CallTool' if way == 'unary' else 'Session'}"


def _row(name: str, pairs: Sequence[Pair]) -> Row:
    return Row(
        "call of an MCP server, 256 B",
        name,
        {
            "p50_ms": median(pair.single.p50_ms for pair in pairs),
            "p99_ms": median(pair.single.p99_ms for pair in pairs),
            "p50_ms at 32": median(pair.parallel.p50_ms for pair in pairs),
            "per_s at 32": median(pair.parallel.per_s for pair in pairs),
        },
    )


def _targets(language: str, taken: Rounds) -> list[Target]:
    theirs = taken[_sdk(language)]
    targets = []
    for way in ("unary", "session"):
        ours = taken[_hosted(language, way)]
        more = median(mine.single.p50_ms - other.single.p50_ms for mine, other in zip(ours, theirs, strict=True))
        rate = ratio(*([pair.parallel.per_s for pair in pairs] for pairs in (ours, theirs)))
        name = _hosted(language, way)
        targets += [
            Target(f"{name}: p50 less the SDK's, ms", more, 0.6, issue=ISSUE),
            Target(f"{name}: rate at 32 / the SDK's", rate, 0.6, at_least=True, issue=ISSUE),
        ]
    return targets


async def _starts(report: Report, language: str, config: Path, effort: Effort) -> None:
    """Start a server with and without a sandbox, by turns, until it has listed its tools."""
    bare: list[float] = []
    hosted: list[float] = []
    async with worker_pools(config) as (pools, catalog):
        spec = spec_of(catalog, "echo")
        for _ in range(effort.starts + 1):
            bare.append(await _start_bare(_SERVERS[language]))
            begun = time.perf_counter()
            lease = await pools.acquire(spec)
            hosted.append((time.perf_counter() - begun) * 1000)
            lease.release()
            await pools.retire(frozenset((spec.key,)))
    del bare[0], hosted[0]  # which read files from the disk
    report.add(
        rows=[
            Row("start of an MCP server", f"{language}, bare", {"median_ms": median(bare)}),
            Row("start of an MCP server", f"{language}, sandboxed", {"median_ms": median(hosted)}),
        ],
        targets=[Target(f"{language} server's start / bare", ratio(hosted, bare), 1.3, issue=ISSUE)],
    )


async def _start_bare(command: Sequence[str]) -> float:
    """Milliseconds until it has listed its tools."""
    begun = time.perf_counter()
    async with running((shutil.which(command[0]) or command[0], *command[1:])) as process:
        await _ask(process, command, {"id": 1, "method": "initialize", "params": _HANDSHAKE})
        _tell(process, {"method": "notifications/initialized"})
        await _ask(process, command, {"id": 2, "method": "tools/list", "params": {}})
        return (time.perf_counter() - begun) * 1000


async def _ask(process: asyncio.subprocess.Process, command: Sequence[str], message: dict[str, object]) -> None:
    _tell(process, message)
    answer = json.loads(await read_line(process, command))
    if "result" not in answer:
        raise RuntimeError(f"the server refuses {message['method']}: {answer}")


def _tell(process: asyncio.subprocess.Process, message: dict[str, object]) -> None:
    if process.stdin is None:
        raise RuntimeError("a server is always started with pipes")
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
