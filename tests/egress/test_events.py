"""Each request leaves one line in the log, without what may be secret."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from fumehood_server.egress import EgressRequest, log_event
from fumehood_server.egress.broker import Broker
from fumehood_server.telemetry import configure_logging

from tests.egress.support import Net, Recorder, answering, external, fetch, names, net, redirect, reply

pytestmark = pytest.mark.promise("S808")


async def test_a_request_is_one_line_of_the_log_without_query_fields_and_body() -> None:
    readable, writable = os.pipe()
    flush = configure_logging("info", descriptor=writable, terminal=False)
    try:
        async with answering(redirect("/two?key=hunter2"), reply(b"hunter2")) as server:
            table = names(a_test="1.1.1.1")
            recorder = Recorder(server.port)
            network = Net(Broker(resolver=table, dialler=recorder, sink=log_event), table, recorder, net().events)
            request = EgressRequest("POST", "http://a.test/one?key=hunter2", (("X-Key", "hunter2"),), b"hunter2")
            assert (await fetch(network, request, external("a.test:80"))).status == 200
            await fetch(network, "http://b.test/?key=hunter2", external("a.test:80"))
        flush()
    finally:
        os.close(writable)
        configure_logging("info")
    with os.fdopen(readable) as stream:
        lines: list[dict[str, Any]] = [json.loads(line) for line in stream]
    assert "hunter2" not in str(lines)
    done, refused = lines
    assert done["event"] == refused["event"] == "egress"
    assert (done["plugin"], done["tool"], done["call_id"], done["method"]) == ("fetcher", "fetch", "call-1", "POST")
    assert [(hop["path"], hop["address"], hop["status"]) for hop in done["hops"]] == [
        ("/one", "1.1.1.1", 302),
        ("/two", "1.1.1.1", 200),
    ]
    assert (done["outcome"], done["reason"]) == ("done", None)
    assert (refused["outcome"], refused["reason"], refused["level"]) == ("refused", "host_not_granted", "warning")
    assert done["url_digest"] != refused["url_digest"]
    assert len(done["url_digest"]) == 64
