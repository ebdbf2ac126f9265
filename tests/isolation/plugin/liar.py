"""Changes at its import what its zygote and their children say, as the file beside it asks; see `test_lies`.

A deed is done at one fork, or from one on. `_run_child` and `_drop_privileges` are the zygote's own: whoever is
imported can replace them, so nothing may depend on them.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fumehood_sdk import Plugin

plugin = Plugin("liar", version="1.0.0")
_asked = json.loads((Path(__file__).parent / "deed").read_text())
_zygote: Any = sys.modules.get("fumehood_zygote")
_run_child = _zygote._run_child if _zygote is not None else None
_PIPES = 3
"""Descriptors of a request before those of a cgroup."""


class _Control:
    """What a child says its number by."""

    def __init__(self, true: socket.socket, say: Callable[[socket.socket, bytes], Any]) -> None:
        self._true = true
        self._say = say

    def send(self, message: bytes) -> None:
        self._say(self._true, message)


def _other(message: bytes, by: int) -> bytes:
    return message[:1] + str(int(message[1:]) + by).encode()


def _twice(true: socket.socket, message: bytes) -> None:
    true.send(message)
    true.send(message)


def _for_a_sibling_too(true: socket.socket, message: bytes) -> None:
    true.send(message)
    true.send(_other(message, 1))


def _flood(true: socket.socket, message: bytes) -> None:
    for _ in range(500):
        true.send(message + bytes(900), socket.MSG_DONTWAIT)


def _with_descriptors(true: socket.socket, message: bytes) -> None:
    true.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2] * 4))])


def _and_die(true: socket.socket, message: bytes) -> None:
    true.send(message)
    os._exit(0)


SAYS: dict[str, Callable[[socket.socket, bytes], Any]] = {
    "the next one's number": lambda true, message: true.send(_other(message, 1)),
    "the number before": lambda true, message: true.send(_other(message, -1)),
    "starts twice": _twice,
    "starts for a sibling too": _for_a_sibling_too,
    "refused": lambda true, message: true.send(b"f" + message[1:] + b" 11"),
    "refused by a number that is none": lambda true, message: true.send(b"f" + message[1:] + b" " + b"9" * 40),
    "garbage": lambda true, _message: true.send(bytes(range(128, 192))),
    "nothing": lambda true, _message: true.send(b""),
    "flood": _flood,
    "descriptors": _with_descriptors,
    "dies before it is met": lambda _true, _message: os._exit(0),
    "dies when it is met": _and_die,
    "never answers": lambda _true, _message: signal.pause(),
}


def _dies_when_set() -> None:
    os.write(1, b"r")
    os._exit(0)


def _dies() -> None:
    os._exit(0)


GIVES_UP: dict[str, Callable[[], Any]] = {
    "gives nothing up": lambda: None,
    "dies while it gives up": _dies,
    "dies when it is set": _dies_when_set,
    "never is set": signal.pause,
}


def _lie(control: socket.socket, request: bytes, fds: list[int], run: Callable[[], None], main: Any) -> None:
    deed, at, on = _asked["deed"], _asked["at"], _asked["from_then_on"]
    if int(request) == at or (on and int(request) > at):
        if deed in GIVES_UP:
            _zygote._drop_privileges = GIVES_UP[deed]
        fds = fds[:_PIPES] if deed == "stays in the zygote's leaf" else fds
        _run_child(_Control(control, SAYS.get(deed, socket.socket.send)), request, fds, run, main)
    _run_child(control, request, fds, run, main)


if _zygote is not None:
    _zygote._run_child = _lie


@plugin.tool(side_effects="none", isolation="call")
def run(code: str) -> str:
    """Say the same."""
    return code
