"""The sidecar without one of its choices. `python -m bench.peers.changed_sidecar CHANGE --config FILE`."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from pathlib import Path

from fumehood_server import app, one_processor
from fumehood_server.catalog import load_config
from fumehood_server.cli.commands.serve import GRPC_EXPERIMENTS
from fumehood_server.worker import WorkerSettings
from fumehood_server.worker.attention import Attention
from fumehood_server.worker.company import Company

from bench.harness.processes import python

UNMEASURED, INATTENTIVE, SCATTERED, IMPATIENT = "unmeasured", "inattentive", "scattered", "impatient"


def changed(change: str) -> tuple[str, ...]:
    """Return the command that starts such a sidecar, with gRPC as `fumehood serve` has it."""
    return ("env", f"GRPC_EXPERIMENTS={GRPC_EXPERIMENTS}", *python("bench.peers.changed_sidecar", change))


def _unmeasured() -> None:
    """Neither measure nor watch calls."""
    settings = functools.partial(WorkerSettings, measures=False)
    setattr(app, "WorkerSettings", settings)  # noqa: B010 - not its author's wish


def _inattentive() -> None:
    """Look for no call's answer."""
    setattr(Attention, "is_due", lambda _: False)  # noqa: B010 - likewise


def _scattered() -> None:
    """Leave every thread where the kernel puts it."""
    setattr(one_processor, "gather", _nothing)  # noqa: B010 - likewise


def _nothing() -> None:
    pass


def _impatient() -> None:
    """Have no call's frame wait for others, beyond the turn of the loop in which it was made."""
    setattr(Company, "turns", lambda _, under_way: int(under_way > 1))  # noqa: B010 - likewise


_CHANGES: dict[str, Callable[[], None]] = {
    UNMEASURED: _unmeasured,
    INATTENTIVE: _inattentive,
    SCATTERED: _scattered,
    IMPATIENT: _impatient,
}


def main() -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("change", choices=list(_CHANGES))
    parser.add_argument("--config", type=Path, required=True)
    options = parser.parse_args()
    _CHANGES[options.change]()
    return app.serve(load_config(options.config))


if __name__ == "__main__":
    sys.exit(main())
