"""The errors of a validator hold copies of the values: those are bounded before they are made. The cases run in a
process of its own whose memory is bounded, since only there a copy too many can be seen."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from fumehood_server.model.call import CallError
from fumehood_server.validation.schemas import Validators

from tests.calls.documents import prepare_arguments
from tests.calls.fake import tool

TEXT = "a" * 1_000_000
HEADROOM_BYTES = 256 * 1024 * 1024
"""Above what the process has once it is ready. A copy for each of the errors here is 500 MB at least."""

CHILD = """
import json, resource, sys
from dataclasses import replace
from tests.calls.documents import prepare_arguments
from tests.calls.documents import check_result
from fumehood_server.validation.schemas import Validators
from tests.calls.fake import SPEC, answered, tool
headroom, cases = json.load(sys.stdin)
for line in open("/proc/self/status"):
    if line.startswith("VmSize:"):
        size = int(line.split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + headroom,) * 2)
for schema, text in cases:
    refused = prepare_arguments(tool(schema=schema), text, Validators())
    print(refused.details["arguments"][0]["rule"], flush=True)
    result = answered(details_json=text)
    error = check_result(tool(output_schema=schema), replace(SPEC, output_bytes=1 << 30), result, Validators()).error
    print(error.details["output"][0]["rule"], flush=True)
"""


def faults(schema: dict[str, Any], value: object) -> list[dict[str, str]]:
    refused = prepare_arguments(tool(schema=json.dumps(schema)), json.dumps(value), Validators())
    assert isinstance(refused, CallError)
    found: list[dict[str, str]] = refused.details["arguments"]
    return found


def test_a_long_text_that_many_rules_refuse_is_not_copied_for_each() -> None:
    names = [f"n{number}" for number in range(1000)]
    number = {"n": {"type": "integer"}}
    referring = {"properties": {"x": {"allOf": [{"$ref": "#/$defs/n"}] * 500}}, "$defs": number}
    cases: list[tuple[dict[str, Any], object]] = [
        (referring, {"x": TEXT}),
        ({"required": names}, {"x": TEXT}),
        ({"dependentRequired": {"x": names}}, {"x": TEXT}),
        ({"propertyNames": {"maxLength": 1}}, {**dict.fromkeys(names, 0), "x": TEXT}),
        ({"anyOf": [{"required": [name]} for name in names]}, {"x": TEXT}),
    ]
    texts = [(json.dumps({"type": "object"} | schema), json.dumps(value)) for schema, value in cases]
    ran = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps([HEADROOM_BYTES, texts]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout.split(), ran.returncode) == (["size"] * 2 * len(cases), 0), ran.stderr


def test_what_is_wrong_beside_a_long_text_is_told_where_few_rules_look_at_it() -> None:
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1},
            "text": {"type": "string"},
            "n": {"type": "integer"},
        },
        "required": ["path", "text", "n"],
        "additionalProperties": False,
    }
    assert sorted(fault["pointer"] for fault in faults(schema, {"text": TEXT, "n": "many"})) == ["/n", "/path"]


def test_one_wrong_type_beside_a_long_text_is_still_mended() -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}
    text = json.dumps({"text": TEXT, "n": "5"})
    mended = prepare_arguments(tool(schema=json.dumps(schema)), text, Validators())
    assert isinstance(mended, str)
    assert json.loads(mended)["n"] == 5


def test_a_message_never_holds_the_value_at_fault() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"maxLength": 2}, "z": {"enum": [1]}}}
    found = faults(schema, {"x": "secret-one", "y": "secret-two", "z": "secret-three"})
    assert len(found) == 3
    assert "secret" not in json.dumps(found)
