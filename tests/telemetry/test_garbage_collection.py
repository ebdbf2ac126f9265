"""The garbage collector of a sidecar that serves: it does not look at what was imported and loaded, again and again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LAUNCH = """
import gc, json, os, signal, sys
from pathlib import Path
from fumehood_server.app import serve
from fumehood_server.config import load_config

def ready(targets):
    print(json.dumps([gc.get_freeze_count(), len(gc.get_objects())]), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

sys.exit(serve(load_config(Path(sys.argv[1])), ready=ready))
"""


def test_a_full_collection_looks_at_little_once_the_sidecar_serves(tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text('[server]\nlisten = ["127.0.0.1:0"]\nallow_anonymous = true\n')
    command = (sys.executable, "-c", LAUNCH, str(tmp_path / "fumehood.toml"))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    frozen, tracked = json.loads(ended.stdout)
    assert tracked < 1000
    assert frozen > 30_000
