"""What a replica votes for: the value at a pointer of its output, and the hash by which votes are compared."""

from __future__ import annotations

import json

from fumehood_server.validation.canonical import canonical_sha256
from fumehood_server.validation.documents import Accepted, Document, Flaw, Rejected, Verdict
from fumehood_server.validation.explanation import fault_json
from fumehood_server.validation.model_text.pointers import NothingThereError, value_at
from fumehood_server.validation.strict_json import JsonError, parse


def check_vote(document: Document) -> Verdict:
    """The value's JSON, with its canonical hash (RFC 8785). The pointer stands in the schema's place."""
    pointer = document.schema_json
    try:
        value = value_at(parse(document.text), pointer)
    except JsonError as exc:
        return Rejected(Flaw.NOT_JSON, exc.problem)
    except NothingThereError:
        return Rejected(Flaw.DOES_NOT_FIT, faults=(fault_json(pointer, "vote", "there is no value to vote with"),))
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return Accepted(text, canonical_sha256(value, text))
