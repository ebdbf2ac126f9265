"""A schema on which the library that validates panics makes a call fail by name, and nothing else."""

from __future__ import annotations

import json

import pytest
from fumehood_server.validation.budget import INLINE
from fumehood_server.validation.checking import check_document
from fumehood_server.validation.documents import Document, Flaw, Kind, Rejected
from fumehood_server.validation.schemas import Validators


def ref(number: int) -> dict[str, str]:
    return {"$ref": f"#/$defs/d{number}"}


PANICS = {
    "type": "object",
    "$defs": {
        "d0": {"anyOf": [{"allOf": [ref(1)]}]},
        "d1": {"anyOf": [{"anyOf": [ref(2)]}]},
        "d2": {"unevaluatedProperties": ref(3)},
        "d3": {"patternProperties": {"m": ref(4)}},
        "d4": {"allOf": [ref(5)]},
        "d5": {"prefixItems": [{}, {"propertyNames": ref(6)}]},
        "d6": {"unevaluatedProperties": {}, "anyOf": [ref(7)]},
        "d7": {"allOf": [ref(8)]},
        "d8": ref(9),
        "d9": {**ref(10), "patternProperties": {"l": ref(10)}},
        "d10": {"patternProperties": {"k": ref(11)}},
        "d11": {},
    },
    **ref(0),
}
TEXT = '{"m":{"k":{"l":{"k":"x"},"k":{}},"m":["x",{"k":null},{}],"l":{}}}'


@pytest.mark.parametrize("kind", [Kind.ARGUMENTS, Kind.OUTPUT])
def test_a_panic_of_the_library_is_a_verdict(kind: Kind) -> None:
    found = check_document(Document(kind, "digest", json.dumps(PANICS), TEXT), Validators(INLINE), INLINE)
    assert isinstance(found, Rejected)
    assert found.flaw is Flaw.SCHEMA_UNUSABLE
    assert "the validator failed on it" in found.problem
