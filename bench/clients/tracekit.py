"""How many decisions a second tracekit-ai's dev signer signs and stores. `python -m bench.clients.tracekit COUNT`.

HOME is a folder of the caller's own: the signer that this starts keeps its data there, and ends with this.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from tracekit.sdk.client import Client  # type: ignore[import-untyped]

WARM_UP = 20


def main() -> None:
    """Print the rate."""
    count = int(sys.argv[1])
    try:
        with Client().run(agent="bench") as run:
            for number in range(-WARM_UP, count):
                if number == 0:
                    start = time.perf_counter()
                decision = run.decide(f"call-{number}", "Bash", '{"command": "ls"}')
                if decision["decision"] != "allow":
                    raise RuntimeError(f"not allowed: {decision}")
            sys.stdout.write(json.dumps(count / (time.perf_counter() - start)) + "\n")
    finally:
        for endpoint in Path(os.environ["XDG_RUNTIME_DIR"]).rglob("endpoint.json"):
            os.kill(json.loads(endpoint.read_text())["pid"], signal.SIGTERM)


if __name__ == "__main__":
    main()
