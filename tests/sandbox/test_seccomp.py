"""The filter in the kernel: real system calls in a real sandbox."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from fumehood_sandbox.seccomp import ARCHITECTURES, deny_list

from .harness import inside, running

HERE = ARCHITECTURES[platform.machine()]


@pytest.mark.promise("S313")
def test_every_denied_call_fails_in_the_kernel(tmp_path: Path) -> None:
    rules = {rule.syscall: rule for rule in deny_list() if not rule.conditions}
    numbers = {name: number for name in rules if (number := HERE.number(name)) is not None}
    found = inside(tmp_path, f"report({{n: syscall(k, 0, 0, 0, 0, 0, 0) for n, k in {numbers!r}.items()}})")
    expected = {name: "ENOSYS" if name in {"clone3", "openat2"} else "EPERM" for name in numbers}
    assert found == expected


@pytest.mark.promise("S313")
def test_filter_covers_the_namespaces_first_process(tmp_path: Path) -> None:
    with running(tmp_path, "report(1); sys.stdin.read()") as process:
        for pid in (process.init_pid,):
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
            assert "Seccomp:\t2" in status
            assert "NoNewPrivs:\t1" in status
            assert "CapEff:\t0000000000000000" in status


@pytest.mark.promise("S313")
def test_event_loops_threads_and_children_work(tmp_path: Path) -> None:
    """What programs do all the time, and what a filter that denies too much breaks first."""
    found = inside(
        tmp_path,
        """
        import asyncio, threading
        found = {}
        async def nap():
            return await asyncio.to_thread(lambda: "awake")
        found["asyncio"] = asyncio.run(nap())
        thread = threading.Thread(target=lambda: found.__setitem__("thread", "done"))
        thread.start(); thread.join()
        found["child"] = subprocess.run([sys.executable, "-c", "raise SystemExit(7)"]).returncode
        report(found)
        """,
    )
    assert found == {"asyncio": "awake", "thread": "done", "child": 7}
