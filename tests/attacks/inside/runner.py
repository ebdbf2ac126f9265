"""Runs every attack of every family, each in a process of its own, and prints what became of them.

The module that the sandbox runs. The first line of its input is the arena as JSON; its output is one JSON object: for
each "family/attack" the two outcomes, or how the process that tried it ended.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import traceback
from typing import Any

from tests.attacks.inside.kit import Arena, Attack

_BOUND_S = 30.0
"""For one attack: they take milliseconds, and one that waits for ever is as telling as one that works."""


def main() -> None:
    """Run them."""
    sys.stdout.write(json.dumps(run_all(json.loads(sys.stdin.readline()))))
    sys.stdout.flush()


def run_all(given: dict[str, Any]) -> dict[str, list[str]]:
    """What became of each attack of `families`, in the arena that the rest describes."""
    families = given.pop("families")
    given["outside_pids"] = tuple(given["outside_pids"])
    arena = Arena(**given)
    return {
        f"{family}/{attack.name}": _run(attack, arena)
        for family in families
        for attack in importlib.import_module(f"tests.attacks.inside.{family}").ATTACKS
        if arena.level in attack.levels
    }


def _run(attack: Attack, arena: Arena) -> list[str]:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        attacker = os.getpid()
        try:
            answer = list(attack.run(arena))
        except BaseException:  # noqa: BLE001 - whatever it is, it is the finding
            answer = [traceback.format_exc(), ""]
        if os.getpid() == attacker:  # a child of the attack's own that failed came here as well
            os.write(write, json.dumps(answer).encode())
        os._exit(1)
    os.close(write)
    ready, _, _ = select.select([read], [], [], _BOUND_S)
    text = os.read(read, 65536) if ready else b""
    os.close(read)
    if not ready:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if text:
        return [str(each) for each in json.loads(text)]
    return ["hung" if not ready else f"ended with status {status}", ""]


if __name__ == "__main__":
    main()
