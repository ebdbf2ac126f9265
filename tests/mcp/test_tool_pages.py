"""Lists of tools whose pages don't end: refused by name at once, and a list with some empty pages is served."""

from __future__ import annotations

from pathlib import Path

import pytest
from fumehood_sdk.adapters.mcp.listing import MAX_PAGES_WITHOUT_TOOLS

from tests.mcp.adapter_process import adapter_process
from tests.mcp.direct import direct_engine

CODE = """
import json, sys
def page(number, cursor):
    return %s
lists = 0
for line in sys.stdin:
    asked = json.loads(line)
    number, method = asked.get("id"), asked["method"]
    if method == "initialize":
        said = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}}
    elif method == "tools/list":
        cursor = asked["params"].get("cursor", "")
        lists += not cursor
        said = {"result": page(int(cursor or 0) + 1, cursor)}
    elif method == "tools/call":
        said = {"result": {"content": [{"type": "text", "text": "called"}]}}
    else:
        said = {"error": {"code": -32601, "message": "no method"}}
    if number is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": number, **said}), flush=True)
    if method == "tools/call":
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}), flush=True)
"""
TOOL = '{"name": f"t{number}"}'


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('{"tools": [1], "nextCursor": str(number)}', "more than 8 pages hold no tool and name a further page"),
        ('{"tools": [], "nextCursor": str(number)}', "more than 8 pages hold no tool and name a further page"),
        ('{"tools": [1], "nextCursor": "1"}', "it names a cursor that it has named before"),
        (f'{{"tools": [{TOOL}], "nextCursor": "1"}}', "it names a cursor that it has named before"),
        (f'{{"tools": [{TOOL}], "nextCursor": str(number % 3)}}', "it names a cursor that it has named before"),
        (f'{{"tools": [{TOOL}], "nextCursor": str(number)}}', "lists more than 1024 tools"),
    ],
    ids=["no_objects", "empty", "same_without", "same", "circle", "many"],
)
def test_list_that_does_not_end_is_refused_for_what_it_is(tmp_path: Path, page: str, problem: str) -> None:
    with adapter_process(tmp_path, CODE % page) as adapter:
        assert adapter.read() is None
        assert problem in adapter.last_words()


def test_list_with_some_pages_that_hold_no_tool_is_served(tmp_path: Path) -> None:
    last = MAX_PAGES_WITHOUT_TOOLS + 2
    following = f'str(number) if number < {last} else ""'
    page = f'{{"tools": [{TOOL}] if number in (1, {last}) else [], "nextCursor": {following}}}'
    with adapter_process(tmp_path, CODE % page) as adapter:
        greeting = adapter.read()
        assert greeting is not None, adapter.last_words()
        assert [each.name for each in greeting.ready.tools] == ["t1", f"t{last}"]
        assert adapter.call("t1").content[0].text == "called"


def test_list_that_no_longer_ends_ends_the_process(tmp_path: Path) -> None:
    page = f'{{"tools": [{TOOL}], **({{"nextCursor": "1"}} if lists > 1 else {{}})}}'
    with direct_engine(tmp_path, CODE % page) as engine:
        assert engine.call("t1").content[0].text == "called"
        with pytest.raises(AssertionError, match="it names a cursor that it has named before"):
            engine.read()
