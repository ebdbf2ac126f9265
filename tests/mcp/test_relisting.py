"""A server that tells nobody that its tools have changed: where calls come, its list is looked at now and then."""

from __future__ import annotations

from pathlib import Path

import pytest
from fumehood_sdk.adapters.mcp import relisting

from tests.mcp.direct import direct_engine

CODE = """
import json, sys
REVISION, LISTEN = "%s", "%s"
lists = 0
def send(said):
    print(json.dumps({"jsonrpc": "2.0", **said}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    number, method = asked["id"], asked["method"]
    ends = {"id": number, "result": {"resultType": "complete"}}
    if method == "initialize" and REVISION == "2025-11-25":
        send({"id": number, "result": {"protocolVersion": REVISION, "capabilities": {"tools": {}}}})
    elif method == "server/discover" and REVISION == "2026-07-28":
        capabilities = {"tools": {"listChanged": True}}
        send({"id": number, "result": {"supportedVersions": [REVISION], "capabilities": capabilities}})
    elif method == "subscriptions/listen" and LISTEN != "refused":
        honoured = {} if LISTEN == "not_honoured" else {"toolsListChanged": True}
        send({"method": "notifications/subscriptions/acknowledged", "params": {"notifications": honoured}})
        if LISTEN == "ended":
            send(ends)
    elif method == "tools/list":
        lists += 1
        # Once a subscription is in force the list is looked at, here to find it as it was.
        shown = max(lists, 2) if LISTEN == "kept" else lists
        words = [f"Listed {shown} times.", "Always says this."]
        tools = [{"name": n, "description": d} for n, d in zip(("changes", "stays"), words)]
        send({"id": number, "result": {"tools": tools}})
    elif method == "tools/call":
        send({"id": number, "result": {"content": [{"type": "text", "text": asked["params"]["name"]}]}})
    else:
        send({"id": number, "error": {"code": -32601, "message": "no method"}})
"""
OLD = CODE % ("2025-11-25", "")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relisting, "TIMED_RELIST_S", 0.0)


@pytest.mark.usefixtures("at_once")
def test_changed_tool_is_refused_by_the_next_look_and_the_other_is_called(tmp_path: Path) -> None:
    with direct_engine(tmp_path, OLD, is_remote=True) as engine:
        assert engine.call("stays").content[0].text == "stays"
        assert engine.call("changes").error.reason == "definition_changed"
        assert engine.call("stays").content[0].text == "stays"


@pytest.mark.usefixtures("at_once")
def test_list_of_a_server_beside_the_adapter_is_looked_at_when_it_says_so(tmp_path: Path) -> None:
    with direct_engine(tmp_path, OLD) as engine:
        assert engine.call("changes").content[0].text == "changes"


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("listen", ["ended", "refused", "not_honoured"])
def test_server_that_ends_its_subscription_is_looked_at_as_one_that_says_nothing(tmp_path: Path, listen: str) -> None:
    (tmp_path / "kept").mkdir()
    with direct_engine(tmp_path / "kept", CODE % ("2026-07-28", "kept")) as engine:
        assert engine.call("stays").content[0].text == "stays"
        assert engine.call("changes").content[0].text == "changes"
    with direct_engine(tmp_path, CODE % ("2026-07-28", listen)) as engine:
        # The end of the subscription is read before the first call's answer, which is written after it.
        assert engine.call("stays").content[0].text == "stays"
        assert engine.call("changes").error.reason == "definition_changed"
