"""The sidecar without what measures and watches calls. `python -m bench.peers.unmeasured_sidecar CONFIG`."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from fumehood_server import app
from fumehood_server.catalog import load_config
from fumehood_server.worker import WorkerSettings

if __name__ == "__main__":
    setattr(app, "WorkerSettings", functools.partial(WorkerSettings, measures=False))  # noqa: B010 - not its author's wish
    sys.exit(app.serve(load_config(Path(sys.argv[1]))))
