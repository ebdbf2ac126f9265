"""How outcomes are written."""

from __future__ import annotations

import json
from typing import Any

from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.rpc.result_messages import MAX_DETAILS_BYTES, error_message


def details(**facts: Any) -> dict[str, Any]:
    message = error_message(CallError(code=Code.TOOL_EXECUTION_FAILED, message="it broke", details=facts))
    found: dict[str, Any] = json.loads(message.details_json)
    return found


def test_details_that_cannot_be_written_keep_what_programs_switch_on() -> None:
    nested: list[Any] = []
    for _ in range(300):
        nested = [nested]
    assert details(reason="r", extra=[1]) == {"reason": "r", "extra": [1]}
    assert details(reason="r", value=3, extra=nested) == {"reason": "r", "value": 3, "truncated": True}
    assert details(reason="r", extra="\udcff") == {"reason": "r", "truncated": True}
    assert details(reason="\udcff") == {"reason": "\\udcff", "truncated": True}
    assert details(reason="r", extra="x" * MAX_DETAILS_BYTES) == {"reason": "r", "truncated": True}
    assert details(reason="r" * MAX_DETAILS_BYTES)["truncated"]
