"""A process that is reaped while a pidfd of it is asked for has ended, whatever the kernel says of it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess

import pytest
from fumehood_sandbox.kernel.pidfds import open_pidfd, terminate_processes


def _refused_with(number: int, whose: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the kernel answer so for one process."""
    real = os.pidfd_open

    def pidfd_open(pid: int) -> int:
        if pid == whose:
            raise OSError(number, os.strerror(number))
        return real(pid)

    monkeypatch.setattr(os, "pidfd_open", pidfd_open)


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.EINVAL, ProcessLookupError), (errno.ESRCH, ProcessLookupError), (errno.EMFILE, OSError)],
)
def test_error_says_whether_the_process_has_ended(
    number: int, error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    _refused_with(number, 1, monkeypatch)
    os.close(open_pidfd(os.getpid()))
    with pytest.raises(OSError, match=os.strerror(errno.ESRCH if error is ProcessLookupError else number)) as caught:
        open_pidfd(1)
    assert type(caught.value) is error


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ESRCH])
def test_process_that_was_reaped_meanwhile_spares_none_of_the_others_their_signal(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper = subprocess.Popen(["/bin/sleep", "60"])
    try:
        _refused_with(number, 1, monkeypatch)
        terminate_processes(lambda: [1, sleeper.pid])
        assert sleeper.wait(60) == -signal.SIGTERM
    finally:
        sleeper.kill()
        sleeper.wait()
