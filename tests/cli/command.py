"""Runs `fumehood` as a person or a script would: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 60.0
COMMAND = [sys.executable, "-P", "-m", "fumehood_server"]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The error object that `--json` prints on stderr."""
        shape = json.loads(self.stderr)["error"]
        assert isinstance(shape, dict)
        return shape


def environment(address: str = "", more: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FUMEHOOD_")}
    return {**kept, **({"FUMEHOOD_ADDRESS": address} if address else {}), **(more or {})}


def fumehood(
    *arguments: str | Path,
    address: str = "",
    folder: Path | None = None,
    stdin: str | None = None,
    more: Mapping[str, str] | None = None,
) -> Done:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=folder,
        env=environment(address, more),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)
