"""How a sandboxed process tree ends, and that nothing of it is left."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fumehood_sandbox import Executable, LaunchError, Level, Policy, PythonModule, launch, start, system_runtime

from .harness import BOUND_S, processes_below, read_line, read_to_end, readable, running, until_gone

SHELL = Policy(level=Level.NONE, runtime=system_runtime(), environment=(("PATH", "/usr/bin:/bin"),))


@pytest.mark.parametrize(
    ("code", "description"),
    [
        ("pass", "exited with status 0"),
        ("raise SystemExit(3)", "exited with status 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
    ],
)
def test_end_is_described(tmp_path: Path, code: str, description: str) -> None:
    with running(tmp_path, code) as process:
        readable(process.fileno())
        assert process.poll() is not None
        assert process.exit_description == description


def test_terminate_lets_the_program_clean_up(tmp_path: Path) -> None:
    code = """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    report("ready")
    signal.sigwait([signal.SIGTERM])
    report("cleaned")
    raise SystemExit(5)
    """
    with running(tmp_path, code) as process:
        assert read_line(process.stdout) == '"ready"'
        process.terminate()
        assert read_line(process.stdout) == '"cleaned"'
        assert process.wait(BOUND_S) == 5
        process.terminate()


@pytest.mark.promise("S208")
def test_kill_ends_the_whole_tree_also_what_left_its_session(tmp_path: Path) -> None:
    code = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setpgid(0, 0)
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    report("orphan")
    while True:
        signal.pause()
    """
    with running(tmp_path, code) as process:
        assert read_line(process.stdout) == '"orphan"'
        tree = processes_below(process.pid)
        assert len(tree) == 4  # bubblewrap, pid 1, the program, the orphan
        process.terminate()
        assert process.poll() is None
        process.kill()
        assert process.wait(BOUND_S) == 128 + signal.SIGKILL
        until_gone(tree)


@pytest.mark.promise("S208")
def test_orphans_end_with_the_program(tmp_path: Path) -> None:
    code = """
    if os.fork() == 0:
        os.setsid()
        report("orphan")
        while True:
            signal.pause()
    sys.stdin.read(1)
    """
    with running(tmp_path, code) as process:
        read_line(process.stdout)
        tree = processes_below(process.pid)
        os.write(process.stdin, b"x")
        assert process.wait(BOUND_S) == 0
        process.close()
        until_gone(tree)


@pytest.mark.promise("S208")
def test_close_is_idempotent_and_leaves_no_descriptor(tmp_path: Path) -> None:
    with running(tmp_path, "signal.pause()"):
        pass  # what is made once is made now
    before = _descriptors()
    with running(tmp_path, "signal.pause()") as process:
        assert process.exit_description == "running"
        tree = processes_below(process.pid)
    process.close()
    process.kill()
    process.terminate()
    until_gone(tree)
    assert _descriptors() == before


def _descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_wait_is_bounded(tmp_path: Path) -> None:
    with running(tmp_path, "signal.pause()") as process, pytest.raises(TimeoutError):
        process.wait(0.01)


@pytest.mark.promise("S209")
def test_death_of_the_launcher_ends_the_tree() -> None:
    script = """
import os, sys
from fumehood_sandbox import *
policy = Policy(level=Level.NONE, runtime=system_runtime())
process = launch(policy, Executable(("/bin/sh", "-c", "trap '' TERM HUP; setsid sleep 1000 & echo up; wait")))
assert os.read(process.stdout, 3) == b"up\\n"
print(process.pid, flush=True)
sys.stdin.read()
"""
    launcher = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with launcher:
        assert launcher.stdout is not None
        tree = processes_below(int(launcher.stdout.readline()))
        assert len(tree) >= 4
        launcher.kill()
        launcher.wait(BOUND_S)
        until_gone(tree)


@pytest.mark.promise("S208")
def test_launcher_that_inherits_orphans_is_left_without_zombies() -> None:
    script = """
import ctypes, os
from fumehood_sandbox import *
from fumehood_sandbox.outside import bubblewrap
bubblewrap.find()  # what only tries it out is not held
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER, as good as being pid 1 of a container
policy = Policy(level=Level.NONE, runtime=system_runtime())
for _ in range(5):
    with launch(policy, Executable(("/bin/true",))) as process:
        process.wait(20)
    launch(policy, Executable(("/bin/sleep", "1000"))).close()
    start(policy, Executable(("/bin/true",))).abort()
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no children")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True, timeout=BOUND_S)
    assert done.stdout == "no children\n"


@pytest.mark.promise("S209")
def test_launcher_killed_at_any_moment_of_the_start_leaves_no_program() -> None:
    # Without a cgroup, so that it is known when bubblewrap begins. What a launcher leaves in one, the next one kills.
    script = """
import sys
from fumehood_sandbox import *
policy = Policy(level=Level.NONE, runtime=system_runtime(), cgroups=False)
launch(policy, Executable(("/bin/true",))).close()
print("warm", flush=True)
sys.stdin.readline()
launching = start(policy, Executable(("/bin/sleep", "1000")))
print(launching._popen.pid, flush=True)
sys.stdin.read()
"""
    # The first few tenths of a millisecond, in which bubblewrap is not far enough to be held, are not promised.
    for delay_s in (0.004, 0.006, 0.008, 0.010, 0.012, 0.014, 0.020):
        launcher = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with launcher:
            assert launcher.stdout is not None
            assert launcher.stdin is not None
            assert launcher.stdout.readline() == "warm\n"
            launcher.stdin.write("go\n")
            launcher.stdin.flush()
            bubblewrap = int(launcher.stdout.readline())
            select.select([], [], [], delay_s)
            tree = processes_below(bubblewrap)
            launcher.kill()
            launcher.wait(BOUND_S)
            until_gone(tree)


def test_program_gets_the_systems_own_signals_back() -> None:
    script = "grep SigIgn /proc/self/status; yes | head -1"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does to a sidecar
    try:
        with launch(SHELL, Executable(("bash", "-o", "pipefail", "-c", script)), timeout_s=BOUND_S) as process:
            out, err = read_to_end(process)
            assert process.wait(BOUND_S) == 128 + signal.SIGPIPE
    finally:
        signal.signal(signal.SIGHUP, before)
    assert err == ""
    name, ignored, printed = out.split()
    assert (name, printed) == ("SigIgn:", "y")
    assert int(ignored, 16) == 0


@pytest.mark.promise("S208")
def test_abort_at_any_moment_leaves_nothing() -> None:
    for delay_s in (0.0, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01):
        launching = start(SHELL, Executable(("sleep", "1000")))
        select.select([launching], [], [], delay_s)
        tree = processes_below(launching._popen.pid)
        launching.abort()
        launching.abort()
        until_gone(tree)
    with pytest.raises(LaunchError):
        launching.advance()


def test_program_that_ended_before_it_was_looked_at_is_still_given() -> None:
    launching = start(SHELL, Executable(("sh", "-c", "echo hello; exit 4")))
    ended = os.pidfd_open(launching._popen.pid)
    readable(ended)
    os.close(ended)
    process = launching.advance()
    assert process is not None
    with process:
        assert read_to_end(process) == ("hello\n", "")
        process.kill()
        assert process.wait(BOUND_S) == 4
        assert process.exit_description == "exited with status 4"


def test_advance_never_waits_for_the_stage() -> None:
    launching = start(SHELL, Executable(("echo", "hello")))
    process = launching.advance()
    while process is None:
        readable(launching.fileno())
        process = launching.advance()
    with process:
        assert read_to_end(process) == ("hello\n", "")


@pytest.mark.parametrize(
    ("program", "step", "errno"),
    [
        (Executable(("/usr/bin/missing",)), "exec", 2),
        (Executable(("missing",)), "exec", 2),
        (Executable(("/etc/passwd",)), "exec", 13),
        (PythonModule("missing"), "module", 0),
        (PythonModule("json.missing"), "module", 0),
    ],
)
def test_what_cannot_run_is_a_typed_error(program: Executable | PythonModule, step: str, errno: int) -> None:
    with pytest.raises(LaunchError) as caught:
        launch(SHELL, program, timeout_s=BOUND_S)
    assert (caught.value.step, caught.value.errno) == (step, errno)


def test_missing_working_directory_is_a_typed_error() -> None:
    policy = Policy(level=Level.NONE, runtime=system_runtime(), working_directory="/missing")
    with pytest.raises(LaunchError) as caught:
        launch(policy, Executable(("/bin/true",)), timeout_s=BOUND_S)
    assert (caught.value.step, caught.value.path, caught.value.errno) == ("working directory", "/missing", 2)


def test_start_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(LaunchError) as caught:
        launch(SHELL, Executable(("sleep", "1000")), timeout_s=0.0)
    assert caught.value.step == "launch"


def test_program_is_looked_up_on_the_policys_path() -> None:
    with launch(SHELL, Executable(("sh", "-c", "echo $0 $PATH")), timeout_s=BOUND_S) as process:
        assert read_to_end(process)[0].split() == ["sh", "/usr/bin:/bin"]
