"""Which revision is spoken with a server that doesn't know the newest one, or goes wrong where it is asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fumehood_sdk.adapters.mcp import negotiation

from tests.mcp.adapter_process import AdapterProcess, adapter_process
from tests.mcp.direct import direct_engine

CODE = """
import json, sys
PROBE, REVISION = %r, %r
def send(said):
    print(json.dumps({"jsonrpc": "2.0", **said}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    number, method = asked.get("id"), asked["method"]
    if method == "server/discover" and PROBE == "exits":
        sys.exit(3)
    elif method == "server/discover" and PROBE == "silent":
        pass
    elif method == "server/discover" and PROBE:
        data = {"supported": PROBE.split(), "requested": "2026-07-28"}
        send({"id": number, "error": {"code": -32022, "message": "Unsupported protocol version", "data": data}})
    elif method == "initialize":
        send({"id": number, "result": {"protocolVersion": REVISION, "capabilities": {"tools": {}}}})
    elif method == "tools/list":
        send({"id": number, "result": {"tools": [{"name": "echo"}]}})
    elif method == "tools/call":
        token = asked["params"]["_meta"]["progressToken"]
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        send({"id": number, "result": {"content": [{"type": "text", "text": "echo"}]}})
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": "no method"}})
"""


def spoken(adapter: AdapterProcess) -> str:
    """The revision that a call is served by."""
    greeting = adapter.read()
    assert greeting is not None, adapter.last_words()
    assert adapter.call("echo").content[0].text == "echo"
    return greeting.ready.sdk.rpartition("/")[2]


@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_older_revisions_are_spoken(tmp_path: Path, revision: str) -> None:
    with adapter_process(tmp_path, CODE % ("", revision)) as adapter:
        assert spoken(adapter) == revision


def test_revision_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with adapter_process(tmp_path, CODE % ("", "1999-12-31")) as adapter:
        assert adapter.read() is None
        assert "speaks the revision 1999-12-31, which is not spoken here" in adapter.last_words()


def test_server_that_exits_at_the_newer_way_is_started_again_and_asked_the_older_one(tmp_path: Path) -> None:
    with adapter_process(tmp_path, CODE % ("exits", "2025-11-25")) as adapter:
        assert spoken(adapter) == "2025-11-25"


def test_server_that_is_silent_to_the_newer_way_is_asked_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(negotiation, "PROBE_TIMEOUT_S", 0.2)
    with direct_engine(tmp_path, CODE % ("silent", "2025-11-25")) as engine:
        assert engine.call("echo").content[0].text == "echo"


def test_server_of_other_revisions_alone_is_refused_by_their_names(tmp_path: Path) -> None:
    with adapter_process(tmp_path, CODE % ("2099-01-01 2099-12-31", "2025-11-25")) as adapter:
        assert adapter.read() is None
        assert "speaks 2099-01-01, 2099-12-31, and not 2026-07-28" in adapter.last_words()


def test_server_that_names_an_older_revision_beside_one_that_nobody_knows_is_asked_for_it(tmp_path: Path) -> None:
    with adapter_process(tmp_path, CODE % ("2099-01-01 2025-06-18", "2025-06-18")) as adapter:
        assert spoken(adapter) == "2025-06-18"
