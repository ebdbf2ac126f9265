"""The validator process: reads documents from a stream socket and answers each with its verdict, until the socket ends.

It is started by `calls/validator_process.py` with no environment, no descriptor but the socket, and a short list of
modules: what it holds is the text of one call at a time.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import socket
import traceback
from pathlib import Path

from fumehood_server.validation.budget import PROCESS
from fumehood_server.validation.checking import check_document
from fumehood_server.validation.documents import Kind
from fumehood_server.validation.schemas import Validators
from fumehood_server.validation.wire import REQUEST_HEAD, decode_document, encode_fault, encode_verdict

MEMORY_BYTES = 512 * 1024 * 1024
"""Of address space. The worst shapes of 3 MiB took half of it."""

CPU_S = 10.0
"""Of the processor, for one document: the kernel ends the process then (SIGPROF). The worst of 3 MiB took 5 s."""

MODEL_CPU_S = 3.0
"""Likewise, for what a model wrote: json-repair and grammars take quadratic time on text made for it, and others wait.
64 KiB with usual faults are mended in 0.15 s."""

OUT_OF_MEMORY_STATUS = 3
"""Exit status where Python could have no more memory. Native code ends by SIGABRT or SIGSEGV."""

_PR_SET_PDEATHSIG = 1
_SCHEMAS = 64
"""Compiled schemas kept. One of 256 KiB takes some MiB, and 0.1 s to compile."""

_CHUNK_BYTES = 256 * 1024


def main() -> None:
    """Serve the socket that is standard input. Returns when its other end is closed."""
    _bound_itself()
    validators = Validators(PROCESS, _SCHEMAS)
    # Documents are trees: what is thrown away goes at once, and the collector would look at each again and again.
    gc.disable()
    gc.freeze()  # what was imported is never looked at again
    with socket.socket(fileno=0) as stream:
        try:
            while True:
                stream.sendall(_answer(stream, validators))
                gc.collect()
        except (EOFError, ConnectionError):
            return
        except MemoryError:
            # Before the socket is closed, at which the sidecar would kill it and not see this status.
            os._exit(OUT_OF_MEMORY_STATUS)


def _bound_itself() -> None:
    # The kernel ends it with the thread that started it, the sidecar's main one, in the middle of a document too.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which ends native code too
    # Where memory is short, the kernel should end this process and not the sidecar (proc(5)).
    Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _answer(stream: socket.socket, validators: Validators) -> bytes:
    """The frame that answers the next document."""
    kind, hashed, *sizes = REQUEST_HEAD.unpack(_receive(stream, REQUEST_HEAD.size))
    digest, schema, text = (_receive(stream, size) for size in sizes)
    signal.setitimer(signal.ITIMER_PROF, CPU_S if kind <= Kind.OUTPUT else MODEL_CPU_S)
    try:
        document = decode_document(kind, digest, schema, text, hashed=hashed)
        return encode_verdict(document, check_document(document, validators, PROCESS))
    except MemoryError:
        raise
    except Exception as exc:  # noqa: BLE001 - a fault of ours, for the sidecar's log; without values, which are a call's
        where = "".join(traceback.format_tb(exc.__traceback__))
        return encode_fault(f"{type(exc).__name__}\n{where}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _receive(stream: socket.socket, size: int) -> bytes:
    """So many bytes.

    Raises:
        EOFError: the stream ends before.
    """
    received = bytearray()
    while len(received) < size:
        chunk = stream.recv(min(size - len(received), _CHUNK_BYTES))
        if not chunk:
            raise EOFError
        received += chunk
    return bytes(received)
