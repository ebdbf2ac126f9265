"""Progress of tools that name numbers which JSON has not, or none above."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.sidecar import running_sidecar, write_plugin

from .support import modern, request, url_of

CODE = '''
from fumehood_sdk import Context, Plugin

plugin = Plugin("far", version="1.0.0")


@plugin.tool(side_effects="none", isolation="process")
def far(ctx: Context) -> str:
    """Goes far."""
    inf, greatest = float("inf"), 1.7976931348623157e308
    for progress in (1.0, inf, -inf, float("nan"), greatest, None):
        ctx.update("on", progress=progress, total=progress)
    return "there"
'''
TABLE = '[mcp]\nlisten = "127.0.0.1:0"\nallow_anonymous = true\n'


def test_progress_is_a_number_that_rises_up_to_the_greatest_of_json(tmp_path: Path) -> None:
    with running_sidecar([write_plugin(tmp_path / "far", "far", CODE)], more=TABLE) as sidecar:
        sidecar.logged(event="mcp_serving")
        body, headers = modern("tools/call", name="far", arguments={}, meta={"progressToken": "t"})
        _, _, answer = request(url_of(sidecar), body=body, **headers)
    *told, last = [json.loads(line[6:]) for line in answer.decode().splitlines() if line.startswith("data: {")]
    assert last["result"]["content"][0]["text"] == "there", last
    found = [each["params"] for each in told]
    progress = [each["progress"] for each in found]
    assert None not in progress
    assert progress[:4] == sorted(set(progress[:4]))
    assert progress[4:] == [sys.float_info.max] * 2
    assert [each.get("total") for each in found] == [1.0, None, None, None, sys.float_info.max, None]
