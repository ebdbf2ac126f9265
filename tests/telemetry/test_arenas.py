"""malloc's arenas in a sidecar: one, however many threads allocate."""

from __future__ import annotations

import subprocess
import sys

import pytest

COUNT = """
import ctypes, sys, threading
from fumehood_server.allocator import use_one_arena
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
if sys.argv[1] == "one":
    use_one_arena()
together = threading.Barrier(4)

def allocate():
    together.wait()
    libc.malloc(100_000)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
out = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, ctypes.c_void_p(out))
libc.fclose(ctypes.c_void_p(out))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_threads_of_a_sidecar_share_one_arena() -> None:
    assert arenas("one") == 1
    assert arenas("each its own") > 1


def arenas(which: str) -> int:
    command = [sys.executable, "-c", COUNT, which]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.count("<heap nr=")
