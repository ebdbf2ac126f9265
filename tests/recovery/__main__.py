"""Kill a sidecar at random moments under load, and check that nothing promised is lost. Exit status 1: something is."""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sys
import tempfile
from pathlib import Path

from tests.postgresql import running_server
from tests.recovery.kills import LostError, kill_again_and_again


def main() -> int:
    """Run it, and tell what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.recovery", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many sidecars are killed (default: 200)")
    parser.add_argument("--seed", type=int, help="the moments of an earlier run (default: new ones)")
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite", help="where the journal lies")
    options = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    _say(f"seed {seed}")
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(running_server()).new_database() if options.store == "postgresql" else ""
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fh-")))
        folder.chmod(0o755)
        try:
            seen = kill_again_and_again(folder, options.kills, seed, _say, url=url)
        except LostError as error:
            _say(f"LOST: {error}")
            return 1
    _say(
        f"{options.kills} kills, {len(seen.acknowledged)} calls, {len(seen.checkpoints)} checkpoints: "
        f"nothing was lost. Repeated: {dict(seen.repeated)}"
    )
    return 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - it is a command


if __name__ == "__main__":
    sys.exit(main())
