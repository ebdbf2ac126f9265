"""Two sandboxes of the same user beside each other: what one does, the other does not feel."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest
from fumehood_sandbox import Level, Policy

from tests.sandbox.harness import inside, processes_below, read_line, running

SAME = Policy(level=Level.NONE, identity="neighbour")


@pytest.mark.promise("S201")
def test_what_is_asked_for_by_user_reaches_no_other_sandbox(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    idle = 'report("up"); signal.pause()'
    with running(tmp_path / "one", idle, SAME) as neighbour:
        assert json.loads(read_line(neighbour.stdout)) == "up"
        code = """
        child = os.fork()
        if child == 0:
            signal.pause()
        who = os.getuid()
        answers = [error_of(lambda: os.setpriority(os.PRIO_USER, who, 7)), os.getpriority(os.PRIO_PROCESS, child)]
        answers.append(error_of(lambda: os.kill(-1, signal.SIGKILL)))
        report([*answers, os.waitpid(child, 0)[1]])
        """
        found = inside(tmp_path / "other", code, SAME)
        others = processes_below(neighbour.pid)
        assert len(others) >= 3
        # A child takes over its parent's, which need not be 0.
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in others] == [mine] * len(others)
        assert neighbour.poll() is None
    # The same calls worked on what is the sandbox's own.
    assert found == ["done", 7, "done", 9]


@pytest.mark.promise("S205")
def test_limits_of_scheduling_are_set_and_named(tmp_path: Path) -> None:
    with running(tmp_path, "report(1)", SAME) as process:
        (limits,) = [layer.detail.split(", ") for layer in process.receipt.layers if layer.name == "rlimits"]
        read_line(process.stdout)
    assert {"rtprio=0", "nice=0", "core=1"} <= set(limits)


@pytest.mark.promise("S205")
def test_right_to_real_time_scheduling_is_not_handed_on(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_RTPRIO), resource.getrlimit(resource.RLIMIT_NICE)
    try:
        resource.setrlimit(resource.RLIMIT_RTPRIO, (50, 99))
        resource.setrlimit(resource.RLIMIT_NICE, (40, 40))
    except ValueError:
        pytest.skip("this test's user may not give itself the right to real-time scheduling (CAP_SYS_RESOURCE)")
    try:
        found = inside(
            tmp_path,
            """
            import resource
            report({
                "real time": error_of(lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))),
                "priority": error_of(lambda: os.setpriority(os.PRIO_PROCESS, 0, -1)),
                "batch": error_of(lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))),
                "limits": [resource.getrlimit(each) for each in (resource.RLIMIT_RTPRIO, resource.RLIMIT_NICE)],
            })
            """,
        )
    finally:
        resource.setrlimit(resource.RLIMIT_RTPRIO, before[0])
        resource.setrlimit(resource.RLIMIT_NICE, before[1])
    assert found == {"real time": "EPERM", "priority": "EACCES", "batch": "done", "limits": [[0, 0], [0, 0]]}
