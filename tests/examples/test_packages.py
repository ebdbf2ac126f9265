"""The example plugin with a package of its own, from its lock to a call."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import fumehood
from tests.sidecar import running_sidecar

ROOT = Path(__file__).parents[2]
SLOTS = ROOT / "examples" / "plugins" / "slots"
WHEELS = ROOT / "build" / "wheels"
"""What `make setup` fetched, so that no index is needed here."""


def test_slots_is_called_with_the_package_that_its_lock_names(tmp_path: Path) -> None:
    config = tmp_path / "fumehood.toml"
    config.write_text(f"[[plugin]]\npath = {json.dumps(str(SLOTS))}\n")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(WHEELS), "PIP_CONFIG_FILE": "/dev/null"}
    built = fumehood("plugin", "build", "--config", config, "--with", "pip", folder=tmp_path, more=offline)
    assert built.status == 0, built.stderr
    arguments = {"busy": [{"start": 660, "end": 720}, {"start": 540, "end": 600}], "minutes": 60, "closes": 780}
    with running_sidecar([SLOTS], server=f"state_dir = {json.dumps(str(tmp_path / '.fumehood'))}") as sidecar:
        called = fumehood("call", "find_free_slots", "--args", json.dumps(arguments), "--json", address=sidecar.target)
    assert called.json["details"] == [{"start": 600, "end": 660}, {"start": 720, "end": 780}], called.stdout
