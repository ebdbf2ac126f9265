"""From a policy and a program to a process that is held: the one way in.

In order: check the policy, find what enforces it, start bubblewrap (namespaces, mounts, seccomp), which starts the inner stage
(limits, identity, capabilities, Landlock, descriptors), which becomes the program. Each inner step reports over the status
pipe, and the receipt is made of these reports.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import subprocess
import time
from contextlib import ExitStack
from typing import Final

from fumehood_sandbox import bubblewrap
from fumehood_sandbox.errors import LaunchError, PolicyError, SandboxUnavailableError
from fumehood_sandbox.grants import CheckedPolicy, check_policy
from fumehood_sandbox.identity import Identity, identity_for
from fumehood_sandbox.landlock import supported_abi
from fumehood_sandbox.layout import landlock_ruleset, layout_arguments
from fumehood_sandbox.level import Level
from fumehood_sandbox.policy import Policy
from fumehood_sandbox.process import SandboxedProcess
from fumehood_sandbox.program import Executable, Program
from fumehood_sandbox.receipt import Layer, Receipt
from fumehood_sandbox.seccomp import ARCHITECTURES, deny_list, encode, filter_program
from fumehood_sandbox.stage import memory_file, stage_command, stage_file

_REAP_TIMEOUT_S: Final = 10.0
"""For the death of what was just killed; see SandboxedProcess.close."""
_LONGEST_COMPLAINT_BYTES: Final = 4096
_LONGEST_STATUS_BYTES: Final = 64 * 1024
"""The stage writes about 1 KiB; all of it comes before the program runs, so nobody hostile writes here."""
_INNER_LAYERS: Final = ("rlimits", "identity", "capabilities", "landlock", "descriptors", "seccomp")
_NAMESPACES_DETAIL: Final = ", ".join(bubblewrap.NAMESPACES)


class Launching:
    """A start under way. Poll `fileno()` for reading, then `advance()`; or `abort()`."""

    def __init__(self, popen: subprocess.Popen[bytes], status_fd: int, info_fd: int, receipt: Receipt) -> None:
        """Take over the process and both pipes. Made by `start` alone."""
        self._popen = popen
        self._status_fd = status_fd
        self._info_fd = info_fd
        self._receipt = receipt
        self._status = bytearray()
        self._over = False

    def fileno(self) -> int:
        """The status pipe. Readable when `advance` has something to do."""
        return self._status_fd

    def advance(self) -> SandboxedProcess | None:
        """Take in what was reported. Never blocks, but for the death of what failed to start.

        Returns:
            The process once every layer is in force and the program is about to run, or None: not yet.

        Raises:
            LaunchError: a step failed. What was started is dead.
        """
        if self._over:
            raise LaunchError("launch", "it is over")
        while True:
            try:
                part = os.read(self._status_fd, 4096)
            except BlockingIOError:
                return None
            if not part:
                break
            self._status += part
            if len(self._status) > _LONGEST_STATUS_BYTES:
                self._fail(LaunchError("status", "more was reported than any stage writes"))
        try:
            return self._finish()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Kill what was started and wait for its end. Idempotent; does nothing once `advance` gave the process away."""
        if self._over:
            return
        self._over = True
        popen = self._popen
        popen.kill()  # bubblewrap's death kills pid 1 of the namespace, by --die-with-parent
        for stream in (popen.stdin, popen.stdout, popen.stderr):
            if stream is not None:
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(_REAP_TIMEOUT_S)
        os.close(self._status_fd)
        os.close(self._info_fd)

    def _fail(self, error: LaunchError) -> None:
        self.abort()
        raise error

    def _finish(self) -> SandboxedProcess:
        """The pipe is closed: everybody who could report has become the program, or is dead."""
        lines = [line.split("\t") for line in self._status.decode("utf-8", "replace").splitlines()]
        for line in lines:
            if line[0] == "error":
                _, step, problem, path, errno = (*line, "", "", "", "0")[:5]
                raise LaunchError(step, problem, path=path, errno=int(errno or 0))
        if ["ready"] not in lines:
            raise LaunchError("namespaces", self._complaint())
        reported = {line[1]: line[2] for line in lines if line[0] == "layer"}
        missing = [name for name in _INNER_LAYERS if name not in reported]
        if missing:
            raise LaunchError("status", f"not reported: {', '.join(missing)}")
        init_pid = self._init_pid()
        # bubblewrap waits for pid 1 and has not been reaped by us, so the number can't have been given away.
        init_pidfd = os.pidfd_open(init_pid)
        receipt = Receipt(
            self._receipt.level,
            self._receipt.backend,
            self._receipt.policy_digest,
            (*self._receipt.layers, *(Layer(name, reported[name]) for name in _INNER_LAYERS)),
        )
        popen = self._popen
        assert popen.stdin and popen.stdout and popen.stderr  # noqa: S101, PT018 - all three were asked for
        streams = (popen.stdin, popen.stdout, popen.stderr)
        fds = [os.dup(stream.fileno()) for stream in streams]
        for stream in streams:
            stream.close()
        process = SandboxedProcess(popen, init_pid, init_pidfd, receipt, (fds[0], fds[1], fds[2]))
        self._over = True
        os.close(self._status_fd)
        os.close(self._info_fd)
        return process

    def _init_pid(self) -> int:
        try:
            return int(json.loads(os.read(self._info_fd, 4096))["child-pid"])
        except (OSError, ValueError, KeyError) as error:
            raise LaunchError("namespaces", f"bubblewrap did not name its child: {self._complaint()}") from error

    def _complaint(self) -> str:
        """What bubblewrap said. It has the program's stderr until the program runs, which never happened."""
        self._popen.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_REAP_TIMEOUT_S)
        assert self._popen.stderr is not None  # noqa: S101 - it was asked for
        fd = self._popen.stderr.fileno()
        os.set_blocking(fd, False)
        with contextlib.suppress(BlockingIOError):
            text = os.read(fd, _LONGEST_COMPLAINT_BYTES).decode("utf-8", "replace").strip()
            if text:
                return text
        return f"bubblewrap ended with status {self._popen.returncode} and said nothing"


def start(policy: Policy, program: Program) -> Launching:
    """Start a sandboxed process and come back at once: the caller polls `Launching` for the rest.

    Call it from a thread that lives as long as the process: the kernel ties --die-with-parent (PR_SET_PDEATHSIG) to the
    thread that started it, so the process dies with that thread.

    Raises:
        PolicyError: the policy must be changed.
        SandboxUnavailableError: this machine can't enforce it.
        LaunchError: bubblewrap could not be run.
    """
    _check_program(program)
    with ExitStack() as stack:
        checked = check_policy(policy, stack)
        bwrap = bubblewrap.find()
        filter_bytes = _seccomp_filter(policy.level)
        abi = _landlock_abi()
        identity = identity_for(policy.identity)
        return _spawn(checked, program, bwrap, filter_bytes, abi, identity, stack)


def launch(policy: Policy, program: Program, *, timeout_s: float = 10.0) -> SandboxedProcess:
    """Start a sandboxed process and wait until every layer is in force and the program is about to run.

    Same thread rule as `start`.

    Raises:
        PolicyError: the policy must be changed.
        SandboxUnavailableError: this machine can't enforce it.
        LaunchError: a step failed, or it took longer than `timeout_s`. Nothing is left running.
    """
    deadline = time.monotonic() + timeout_s
    launching = start(policy, program)
    try:
        poller = select.poll()
        poller.register(launching.fileno(), select.POLLIN)
        while (left_s := deadline - time.monotonic()) > 0:
            poller.poll(left_s * 1000)
            process = launching.advance()
            if process is not None:
                return process
    except BaseException:
        launching.abort()
        raise
    launching.abort()
    raise LaunchError("launch", f"not done after {timeout_s} s")


def _check_program(program: Program) -> None:
    texts = program.argv if isinstance(program, Executable) else (program.module, *program.argv, *program.path)
    if isinstance(program, Executable) and not program.argv:
        raise PolicyError("program", "an executable needs at least its name")
    if any("\0" in text for text in texts):
        raise PolicyError("program", "NUL can't be part of an argument")


def _seccomp_filter(level: Level) -> bytes:
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise SandboxUnavailableError(
            "seccomp", f"there is no filter for {machine}", f"run on {' or '.join(ARCHITECTURES)}"
        )
    return encode(filter_program(deny_list(level), ARCHITECTURES[machine]))


def _landlock_abi() -> int:
    abi = supported_abi()
    if abi < 1:
        raise SandboxUnavailableError(
            "landlock", "the kernel has none", "use Linux 5.13 or later with landlock among its LSMs (boot option lsm=)"
        )
    return abi


def _spawn(
    checked: CheckedPolicy,
    program: Program,
    bwrap: str,
    filter_bytes: bytes,
    abi: int,
    identity: Identity,
    stack: ExitStack,
) -> Launching:
    """Start bubblewrap. No preexec_fn: the launcher has threads, and between fork and exec none may run Python code."""
    status_read, status_write = _pipe(stack)
    info_read, info_write = _pipe(stack)
    ruleset = landlock_ruleset(checked, abi)
    stage_fd = _owned(stack, stage_file(checked, program, identity, ruleset, status_write))
    filter_fd = _owned(stack, memory_file("fumehood-seccomp", filter_bytes))
    shared = identity.user_namespace_fd is not None
    arguments = [
        *bubblewrap.unshare_flags(shared_user_namespace=shared),
        *(("--userns", str(identity.user_namespace_fd)) if shared else ()),
        *("--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"),
        # What the inner stage needs to take on its identity and to empty the bounding set; it gives all of it up.
        *("--cap-drop", "ALL", "--cap-add", "CAP_SETPCAP"),
        *(("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID") if shared else ()),
        *("--seccomp", str(filter_fd), "--info-fd", str(info_write)),
        *layout_arguments(checked),
    ]
    # Over a descriptor, since anybody inside can read the command line of pid 1.
    arguments_fd = _owned(stack, memory_file("fumehood-arguments", "\0".join((*arguments, "")).encode()))
    inherited = [status_write, info_write, stage_fd, filter_fd, arguments_fd]
    inherited += [grant.fd for grant in (*checked.read, *checked.write)]
    if identity.user_namespace_fd is not None:
        inherited.append(identity.user_namespace_fd)
    try:
        popen = subprocess.Popen(
            [bwrap, "--args", str(arguments_fd), "--", *stage_command(stage_fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=inherited,
            env={},  # its own environment stays readable in /proc/1/environ, whatever --clearenv says
            cwd="/",
            bufsize=0,
        )
    except OSError as error:
        raise LaunchError("bubblewrap", error.strerror or "", path=bwrap, errno=error.errno or 0) from error
    receipt = Receipt(
        checked.policy.level,
        "bubblewrap",
        checked.policy.digest(),
        (
            Layer("namespaces", _NAMESPACES_DETAIL),
            Layer("environment", f"{len(checked.policy.environment)} variables, none inherited"),
        ),
    )
    os.set_blocking(status_read, False)
    return Launching(popen, os.dup(status_read), os.dup(info_read), receipt)


def _pipe(stack: ExitStack) -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    return _owned(stack, read), _owned(stack, write)


def _owned(stack: ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd
