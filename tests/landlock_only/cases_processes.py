"""What keeps a process from others, and what ends it. Run by `test_cases.py`, by two users."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fumehood_sandbox import Backend, Executable, LaunchError, Limits, start
from fumehood_sandbox import system_runtime as runtime_of_the_system

from tests.landlock_only.harness import held, inside, policy
from tests.sandbox.harness import BOUND_S, processes_below, read_line, read_to_end, readable, until_gone

pytestmark = pytest.mark.promise("S904")

_TREE = """
import time
def child():
    if os.fork() == 0:  # its parent dies at once: an orphan
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            left = [error_of(os.setsid), error_of(lambda: os.setpgid(0, 0)), os.getpid()]
            report(left)
            time.sleep(600)
        os._exit(0)
    os.wait()
child()
"""


def _string(*lines: str) -> str:
    """The one of these reports that is a string: two processes report in any order."""
    return next(each for each in map(json.loads, lines) if isinstance(each, str))


def test_nothing_of_other_processes_can_be_read(folder: Path) -> None:
    files = ("environ", "mem", "maps", "cmdline", "status", "stat", "fd", "task", "net/tcp", "mountinfo", "stack")
    look = f"""
    def look(pid):
        answers = {{}}
        for name in {files!r}:
            path = f"/proc/{{pid}}/{{name}}"
            answers[name] = error_of(lambda: os.listdir(path) if os.path.isdir(path) else open(path).close())
        for name in ("root", "cwd", "exe"):
            answers[name] = error_of(lambda: os.readlink(f"/proc/{{pid}}/{{name}}"))
        answers["root/etc"] = error_of(lambda: open(f"/proc/{{pid}}/root/etc/hostname"))
        return answers
    """
    with held(folder, "report(os.getpid()); sys.stdin.read()") as sibling:
        other = int(read_line(sibling.stdout))
        found = inside(
            folder,
            look
            + f"""
    own = [error_of(lambda: open(f"/proc/self/{{name}}").close()) for name in ("environ", "maps", "status", "stat")]
    report([look({os.getpid()}), look({sibling.pid}), look({other}), look(1), own])
    """,
        )
    *others, own = found
    for answers in others:
        assert set(answers.values()) <= {"EACCES", "EPERM", "ENOENT"}, answers
        assert answers["environ"] == answers["mem"] == answers["cmdline"] == "EACCES"
    assert own == ["done"] * 4
    assert Path(f"/proc/{os.getpid()}/environ").read_bytes()  # the launcher's user may


def test_other_processes_cannot_be_signalled_traced_or_changed(folder: Path) -> None:
    with held(folder, "report(os.getpid()); sys.stdin.read()") as sibling:
        other = int(read_line(sibling.stdout))
        found = inside(
            folder,
            f"""
            import resource
            targets = {[os.getpid(), sibling.pid, other]!r}
            pidfds = [os.pidfd_open(pid) for pid in targets]
            answers = dict(
                kill=[error_of(lambda: os.kill(pid, 0)) for pid in targets],
                term=[error_of(lambda: os.kill(pid, signal.SIGWINCH)) for pid in targets],
                pidfd=[error_of(lambda: signal.pidfd_send_signal(fd, 0)) for fd in pidfds],
                getfd=[syscall(438, fd, 0, 0) for fd in pidfds],
                ptrace=[syscall(101, 16, pid, 0, 0) for pid in targets],
                read=[syscall(310, pid, 0, 0, 0, 0, 0) for pid in targets],
                prlimit=[error_of(lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, 1))) for pid in targets],
                nice=[error_of(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)) for pid in targets],
                user=[error_of(lambda: os.setpriority(os.PRIO_USER, 0, 19))],
                affinity=[error_of(lambda: os.sched_setaffinity(pid, {{0}})) for pid in targets],
                scheduler=[
                    error_of(lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))) for pid in targets
                ],
                ioprio=[syscall(251, 1, pid, 3 << 13) for pid in targets],
            )
            child = os.fork()
            if child == 0:
                signal.pause()
            answers["control"] = [
                error_of(lambda: os.kill(child, signal.SIGKILL)),
                error_of(lambda: resource.prlimit(0, resource.RLIMIT_NOFILE, (100, 100))),
                error_of(lambda: os.setpriority(os.PRIO_PROCESS, 0, 19)),
                error_of(lambda: os.sched_setaffinity(0, os.sched_getaffinity(0))),
            ]
            report(answers)
            """,
        )
        assert sibling.poll() is None
    assert set(found.pop("control")) == {"done"}
    for name, answers in found.items():
        assert set(answers) == {"EPERM"}, name


def test_no_socket_and_nothing_that_is_shared_by_the_machine(folder: Path) -> None:
    queue = "fumehood-backend-test"
    found = inside(
        folder,
        f"""
        libc = ctypes.CDLL(None, use_errno=True)
        def outcome(answer):
            return "done" if answer >= 0 else errno.errorcode[ctypes.get_errno()]
        denied = [error_of(lambda: socket.socket(family, kind))
            for family in range(46) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW)]
        denied.append(error_of(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)))
        denied += [
            outcome(libc.shmget(4711, 4096, 0o1600)),
            outcome(libc.shmat(0, 0, 0)),
            outcome(libc.shmctl(0, 2, 0)),
            outcome(libc.semget(4711, 1, 0o1600)),
            outcome(libc.semctl(0, 0, 2, 0)),
            outcome(libc.semop(0, 0, 0)),
            outcome(libc.msgget(4711, 0o1600)),
            outcome(libc.msgsnd(0, 0, 0, 0)),
            outcome(libc.msgrcv(0, 0, 0, 0, 0)),
            outcome(libc.msgctl(0, 2, 0)),
            syscall(240, b"{queue}\\0", os.O_CREAT | os.O_RDWR, 0o600, 0),
            syscall(241, b"{queue}\\0"),
            syscall(250, 0, -1, 0),
            syscall(457, 0, 0, 0, 0),
            syscall(458, 0, 0, 0, 0),
        ]
        import asyncio, mmap, threading
        asyncio.run(asyncio.sleep(0))
        mmap.mmap(-1, 4096)
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
        pair = socket.socketpair()
        pair[0].sendall(b"x")
        report([denied, pair[1].recv(1).decode()])
        """,
    )
    assert set(found[0]) == {"EPERM"}
    assert found[1] == "x"


def test_every_layer_that_was_reported_is_the_kernels_answer(folder: Path) -> None:
    found = inside(
        folder,
        """
        import resource
        status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
        report([
            {name: value.strip() for name, value in status.items()},
            sorted(os.listdir("/proc/self/fd"))[:3], len(os.listdir("/proc/self/fd")), dict(os.environ),
            resource.getrlimit(resource.RLIMIT_FSIZE), os.getppid(), os.getsid(0) == os.getpgid(0) == os.getpid(),
            error_of(lambda: os.setresuid(0, 0, 0)),
            error_of(lambda: os.unshare(1)) if hasattr(os, "unshare") else syscall(272, 0x10000000),
            syscall(165, 0, 0, 0, 0, 0),
            [error_of(lambda: os.setpgid(0, 0)), error_of(os.setsid)],
        ])
        """,
        policy(limits=Limits(file_size_bytes=4096), environment=(("GIVEN", "yes"),)),
    )
    status, fds, count, environment, size, parent, leads, root, unshare, mount, group = found
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert all(int(status[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"))
    assert "0" not in status["Uid"].split()
    assert os.geteuid() != 0 or (int(status["CapBnd"], 16) == 0 and status["Groups"] == "")
    assert fds == ["0", "1", "2"]
    assert count <= 4
    assert set(environment) == {"GIVEN", "TMPDIR"}
    assert size == [4096, 4096]
    assert parent != os.getpid()
    assert leads
    assert root == "EPERM"
    assert unshare == mount == "EPERM"
    assert group == ["EPERM", "EPERM"]


def test_limit_of_processes_holds(folder: Path) -> None:
    found = inside(
        folder,
        """
        children = []
        while len(children) < 40:
            try:
                child = os.fork()
            except BlockingIOError:
                break
            if child == 0:
                signal.pause()
            children.append(child)
        for child in children:
            os.kill(child, signal.SIGKILL)
        report(len(children))
        """,
        policy(limits=Limits(processes=8)),
    )
    # An ordinary user's other processes may end meanwhile, which leaves that many more; nothing else does.
    assert 3 <= found < 40


def test_kill_ends_the_whole_group_also_orphans(folder: Path) -> None:
    with held(folder, _TREE + "sys.stdin.read()") as process:
        *denied, orphan = json.loads(read_line(process.stdout))
        assert denied == ["EPERM", "EPERM"]
        # A process whose parent is just exiting may be missed between the two.
        tree = next(tree for _ in range(1000) if orphan in (tree := processes_below(process.pid)))
        process.kill()
        assert process.wait(BOUND_S) == 128 + signal.SIGKILL
        until_gone(tree)


def test_end_of_the_program_ends_what_it_left(folder: Path) -> None:
    with held(folder, _TREE + "sys.stdin.read(1); sys.exit(7)") as process:
        read_line(process.stdout)
        tree = processes_below(process.pid)
        os.write(process.stdin, b"x")
        assert process.wait(BOUND_S) == 7
        until_gone(tree)


def test_terminate_reaches_the_program_and_its_children_and_not_the_supervisor(folder: Path) -> None:
    code = """
    import time
    ready, told = os.pipe()
    def handler(*_):
        os.write(told, b"x")
        os._exit(5)
    signal.signal(signal.SIGTERM, handler)
    if os.fork() == 0:
        report("child")
        time.sleep(600)
    report("parent")
    os.read(ready, 1)
    time.sleep(600)
    """
    with held(folder, code) as process:
        assert {read_line(process.stdout), read_line(process.stdout)} == {'"child"', '"parent"'}
        process.terminate()
        assert process.wait(BOUND_S) == 5


def test_death_of_the_supervisor_leaves_nothing_once_the_process_is_closed(folder: Path) -> None:
    with held(folder, _TREE + "report(os.getcwd()); sys.stdin.read()") as process:
        scratch = Path(_string(read_line(process.stdout), read_line(process.stdout)))
        tree = processes_below(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        readable(process.fileno())
    until_gone(tree)
    assert not scratch.parent.exists()


def test_launcher_that_is_killed_leaves_nothing(folder: Path) -> None:
    script = f"""
import sys, time
from pathlib import Path
from tests.landlock_only.harness import held
from tests.sandbox.harness import read_line
from tests.landlock_only.cases_processes import _TREE, _string
with held(Path({str(folder)!r}), _TREE + "report(os.getcwd()); sys.stdin.read()") as process:
    print(process.pid, _string(read_line(process.stdout), read_line(process.stdout)), flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-B", "-c", script], stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        readable(launcher.stdout.fileno())
        supervisor, scratch = launcher.stdout.readline().split()
        tree = processes_below(int(supervisor))
        assert len(tree) == 3
        launcher.kill()
    until_gone(tree)
    assert not Path(os.fsdecode(scratch)).parent.exists()


def test_start_that_is_given_up_leaves_nothing() -> None:
    given = policy(runtime=runtime_of_the_system())
    for advance in (False, True):
        launching = start(given, Executable(("/bin/sleep", "600")), backend=Backend.LANDLOCK)
        tree = processes_below(launching._popen.pid)
        if advance:
            poller = select.poll()
            poller.register(launching.fileno(), select.POLLIN)
            poller.poll(BOUND_S * 1000)
        launching.abort()
        until_gone(tree)


def test_supervisor_that_dies_at_once_is_named_and_leaves_nothing() -> None:
    launching = start(policy(), Executable(("/bin/true",)), backend=Backend.LANDLOCK)
    scratch = Path(launching._start._view.base)
    os.kill(launching._popen.pid, signal.SIGKILL)
    readable(launching.fileno())
    with pytest.raises(LaunchError) as caught:
        launching.advance()
    assert caught.value.step == "keeper"
    assert not scratch.exists()


def test_output_ends_when_the_program_closes_it(folder: Path) -> None:
    """The group supervisor, which lives longer, must not hold the other end."""
    with held(folder, "os.close(1); os.close(2); sys.stdin.read()") as process:
        assert read_to_end(process) == ("", "")
        assert process.poll() is None
