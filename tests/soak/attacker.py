"""The process of one attack: `python -m tests.soak.attacker KIND PUBLIC PRIVATE SECONDS WEB`. Prints its outcomes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys

from tests.soak.arena import Arena
from tests.soak.attacks import KINDS

NICE = 10
"""Attackers are other machines as a rule: here they must not take the processor from whom they attack."""


async def attack(kind: str, public: str, private: str, seconds: float, web: int) -> None:
    """Attack for so long, and print how often each outcome was met."""
    with socket.socket(fileno=web) as listening:
        arena = Arena(public, private, seconds, listening)
        await KINDS[kind].attack(arena)
    print(json.dumps(arena.outcomes))  # noqa: T201 - for the process that started this one


if __name__ == "__main__":
    os.nice(NICE)
    asyncio.run(attack(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5])))
