"""Words for what a sidecar of `plugin dev` and `mcp wrap` logs."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fumehood_sandbox import Level
from fumehood_server.cli.dev_sidecar import DevGrants, DevSidecar
from fumehood_server.cli.event_text import event_text
from fumehood_server.config import load_config


def sidecar(folder: Path, shown: list[Mapping[str, Any]]) -> DevSidecar:
    (folder / "plugin").mkdir()
    grants = DevGrants(max_side_effects=Level.NONE)
    return DevSidecar(folder, folder / "plugin", grants, shown.append, environments=folder / "packages")


def test_an_event_without_a_message_is_told_with_its_plugin_and_the_reasons() -> None:
    refused = {"event": "plugin_refused", "level": "warning", "plugin": "dice", "reasons": ["plugin_invalid: no", "b"]}
    assert event_text(refused) == "plugin refused: dice: plugin_invalid: no; b"
    kept = {"event": "plugin_reload_refused", "level": "warning", "plugin": "dice", "problem": "files changed"}
    assert event_text(kept) == "plugin reload refused: dice: files changed"
    assert event_text({"event": "mcp_ended", "level": "warning", "status": 3, "retry_s": 1}) == (
        "mcp ended status=3 retry_s=1"
    )


def test_a_warning_is_shown_in_words_and_what_held_the_sidecar_up_is_not(tmp_path: Path) -> None:
    shown: list[Mapping[str, Any]] = []
    events = [
        {"event": "loop_held_up", "level": "warning", "ms": 25.1, "culprit": "kernel", "times": 1},
        {"event": "plugin_reload_refused", "level": "warning", "plugin": "dice", "problem": "files changed"},
        {"event": "plugin_log", "level": "warning", "message": ""},
    ]
    sidecar(tmp_path, shown)._read_log(io.StringIO("".join(json.dumps(each) + "\n" for each in events)))
    assert [each["message"] for each in shown] == ["plugin reload refused: dice: files changed", ""]


def test_a_plugin_of_a_private_sidecar_has_a_minute_to_start(tmp_path: Path) -> None:
    sidecar(tmp_path, [])
    assert load_config(tmp_path / "fumehood.toml").server.start_timeout_s == 60
