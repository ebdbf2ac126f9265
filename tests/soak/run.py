"""One soak: quiet, beside each kind of attack, beside all of them, and the memory afterwards."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.rpc.support import call
from tests.soak.arena import WITHOUT_REASON
from tests.soak.attacks import KINDS
from tests.soak.house import House, open_house
from tests.soak.watch import Latency, Watch, watching

QUIET_S = 5.0
LATENCY_MS = 50.0
"""The p99 of the caller that behaves well stays within so much of its quiet one.

On a machine where the median of quiet calls is above `QUIET_P50_MS` it is as many times more. Neither counts the time
in which a thread of the sidecar, or of the worker that runs the call, was ready and had no processor, nor what the
control was late for. A kind beside which calls are later is tried once more, and judged by that: the machine may have
been busy otherwise.
"""
QUIET_P50_MS = 5.0
MEMORY_MIB = 2765.0
"""The sidecar's own process never holds more: the 2.7 GiB that docs/operations.md states."""
BACK_SHARE = 1.2
"""Once the attacks are over it holds at most so much of what it held when it was quiet."""
BACK_S = 10.0
"""How long that may take."""
SETTLE_S = 0.5
EXIT_S = 90.0
"""Calls under way when an attack ends have their outcomes by then."""
ALL = "all at once"
_MIN_S = 2.0
_TOO_MANY = "refused:_TOO_MANY_CALLS"
_VALIDATED_BYTES = 500_000
"""Of arguments that a process of their own validates."""
_ORDINARY_CALLS = 128
"""At once, by one caller: half of what the sidecar takes by default."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Row:
    """What was seen beside one kind of attack."""

    kind: str
    latency: Latency
    echo: Latency
    """Of the control: what the machine alone is late for."""
    memory_mib: float
    processor_wait_s: float
    """How long the sidecar's event loop was ready and had no processor."""
    outcomes: dict[str, int] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    late: str = ""
    """The one of them that the machine may be to blame for."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one soak found."""

    quiet: Latency
    quiet_echo: Latency
    quiet_mib: float
    rows: list[Row]
    after_mib: float
    faults: list[str]
    """What no machine excuses: a call without its outcome, a good caller refused, memory above what is documented."""
    missed: list[str]
    """Bounds of time, and of memory afterwards, that a machine with other work may miss."""
    skipped: list[str]
    loop: dict[str, object]
    """How the sidecar's event loop was held up, by its own last line."""


def soak(seconds: float, *, only: Sequence[str], nice: int, folder: Path, say: Say) -> Report:
    """Run one soak of about so long, with its logs in `folder`. `nice` is for the sidecar and who behaves well."""
    log = folder / "log"
    with open_house(log, nice=nice) as house:
        kinds = [kind for kind in KINDS if house.slow_names or not KINDS[kind].slow_names]
        wanted = list(only or [*KINDS, ALL])
        turns = [turn for turn in wanted if turn == ALL or turn in kinds]
        skipped = [f"{turn}: takes root and a mount namespace" for turn in wanted if turn not in turns]
        turn_s = max((seconds - QUIET_S - BACK_S / 2) / len(turns), _MIN_S)
        process = house.sidecar.process
        with watching(process.pid, house.private, folder, nice=nice) as watch:
            for each in (watch.caller, watch.echo):
                each.wait_until_answered()
            watch.sidecar.watch_workers()
            _use_everything(house)
            begin = time.time()
            time.sleep(QUIET_S)
            end = time.time() - SETTLE_S
            quiet, quiet_echo = watch.between(begin, end)
            quiet_mib = watch.sidecar.now_mib()
            say(f"quiet: p50 {quiet.p50_ms:.1f} ms, p99 {quiet.p99_ms:.1f} ms, {quiet_mib:.0f} MiB")
            rows = []
            for turn in turns:
                if process.poll() is not None:
                    break
                attacks = kinds if turn == ALL else [turn]
                row = _beside(turn, attacks, turn_s, house, watch=watch, quiet=quiet, quiet_echo=quiet_echo)
                say(_line(row))
                if row.late and row.faults == (row.late,):
                    row = _beside(turn, attacks, turn_s, house, watch=watch, quiet=quiet, quiet_echo=quiet_echo)
                    say(_line(row))
                rows.append(row)
            after_mib = _after(watch, quiet_mib)
        faults = [f"{row.kind}: {fault}" for row in rows for fault in row.faults if fault != row.late]
        missed = [f"{row.kind}: {row.late}" for row in rows if row.late]
        if process.poll() is not None:
            faults.append(f"the sidecar ended with status {process.returncode}")
        elif after_mib > BACK_SHARE * quiet_mib:
            missed.append(f"memory afterwards: {after_mib:.0f} MiB, {quiet_mib:.0f} MiB when quiet")
    return Report(quiet, quiet_echo, quiet_mib, rows, after_mib, faults, missed, skipped, _loop(log))


def _use_everything(house: House) -> None:
    """Have the sidecar do what an ordinary day has it do: what it keeps of that is no memory that an attack leaves.

    It imports and starts then what it needs, and Python keeps what it took for the objects of many calls.
    """
    with grpc.insecure_channel(house.private) as channel:
        tools = ToolServiceStub(channel)
        for tool, arguments in (
            ("fetcher_fetch", {"url": "http://127.0.0.1:1/", "times": 1}),  # which isn't granted
            ("echo", {"text": "x" * _VALIDATED_BYTES}),
        ):
            tools.CallTool(call(tool, arguments), timeout=EXIT_S)
        many = [tools.CallTool.future(call("echo", {"text": "hi"}), timeout=EXIT_S) for _ in range(_ORDINARY_CALLS)]
        for each in many:
            each.result()


def _beside(
    turn: str,
    attacks: Sequence[str],
    seconds: float,
    house: House,
    *,
    watch: Watch,
    quiet: Latency,
    quiet_echo: Latency,
) -> Row:
    watch.sidecar.take_peak_mib()
    begin = time.time()
    with contextlib.ExitStack() as stack:
        if any(KINDS[kind].stuck_log for kind in attacks):
            stack.enter_context(house.log.stuck())
        started = [stack.enter_context(_attacker(kind, seconds, house)) for kind in attacks]
        ends_by = time.monotonic() + seconds + EXIT_S
        counted = [_outcomes(kind, process, ends_by) for kind, process in zip(attacks, started, strict=True)]
    end = time.time()
    time.sleep(SETTLE_S)
    (latency, echo), peak_mib = watch.between(begin, end), watch.sidecar.take_peak_mib()
    outcomes: dict[str, int] = {}
    for each in counted:
        for name, count in each.items():
            outcomes[name] = outcomes.get(name, 0) + count
    faults = [
        f"{name.removeprefix('! ')} ({count} times)"
        for name, count in outcomes.items()
        if name.startswith("!") and not (turn == ALL and name in WITHOUT_REASON)
    ]
    # All at once share two processors with the sidecar on a small machine: what is late then is told and not judged.
    late_ms = latency.p99_with_processor_ms - quiet.p99_with_processor_ms
    late_ms -= max(echo.p99_ms - quiet_echo.p99_ms, 0.0)
    late = ""
    if turn != ALL and late_ms > LATENCY_MS * max(quiet.p50_ms / QUIET_P50_MS, 1.0):
        late = f"p99 {late_ms:.0f} ms above the quiet one"
        faults.append(late)
    not_ok = latency.not_ok
    if turn == ALL:  # some attack over its address, where it is one caller with them
        not_ok = {name: count for name, count in not_ok.items() if name != _TOO_MANY}
    if not_ok:
        ends = ", ".join(f"{count} {name}" for name, count in not_ok.items())
        faults.append(f"of {latency.calls} good calls {ends}")
    if peak_mib > MEMORY_MIB:
        faults.append(f"memory {peak_mib:.0f} MiB")
    return Row(turn, latency, echo, peak_mib, watch.sidecar.loop_waited_s(begin, end), outcomes, tuple(faults), late)


@contextlib.contextmanager
def _attacker(kind: str, seconds: float, house: House) -> Iterator[subprocess.Popen[str]]:
    with socket.socket(fileno=socket.dup(house.web.fileno())) as web:
        web.set_inheritable(True)
        number = web.fileno()
        arguments = (kind, house.public, house.private, str(seconds), str(number))
        command = (sys.executable, "-m", "tests.soak.attacker", *arguments)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=(number,))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _outcomes(kind: str, process: subprocess.Popen[str], ends_by: float) -> dict[str, int]:
    """What the attacker counted."""
    try:
        said, _ = process.communicate(timeout=max(ends_by - time.monotonic(), 0.0))
        found: dict[str, int] = json.loads(said)
    except subprocess.TimeoutExpired:
        return {f"! {kind}: calls had no outcome within {EXIT_S:.0f} s": 1}
    except json.JSONDecodeError:
        return {f"! {kind}: the attacker failed with status {process.returncode}": 1}
    return found


def _after(watch: Watch, quiet_mib: float) -> float:
    """What it holds when nobody attacks any more, as soon as that is little enough."""
    deadline = time.monotonic() + BACK_S
    while (now := watch.sidecar.now_mib()) > BACK_SHARE * quiet_mib and time.monotonic() < deadline:
        time.sleep(0.2)
    return now


def _loop(log: Path) -> dict[str, object]:
    """What the sidecar said of its loop as it ended."""
    for line in reversed(log.read_bytes().splitlines()):
        if b'"stopped"' in line:
            return {name: value for name, value in json.loads(line).items() if name.startswith("loop_")}
    return {}


def _line(row: Row) -> str:
    latency = row.latency
    ends = ", ".join(f"{count} {name}" for name, count in sorted(row.outcomes.items(), key=lambda each: -each[1])[:4])
    verdict = "; ".join(row.faults) or "held"
    return (
        f"{row.kind:18} p50 {latency.p50_ms:7.1f}  p99 {latency.p99_ms:7.1f}, with a processor "
        f"{latency.p99_with_processor_ms:6.1f}  max {latency.longest_ms:7.1f} ms; echo p99 {row.echo.p99_ms:5.1f}; "
        f"{row.memory_mib:4.0f} MiB; {row.processor_wait_s:.1f} s without a processor  [{ends}]  {verdict}"
    )
