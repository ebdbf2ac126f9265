"""Every field of an event that names what lies beside it is known to whoever checks that."""

from __future__ import annotations

from dataclasses import fields

from fumehood_evidence import verification
from fumehood_server.model.event_types import EVENTS, PAYLOADS


def test_no_event_names_two_payloads_and_auditors_know_the_same() -> None:
    named = {
        kind: [field.name for field in fields(each) if "Digested" in str(field.type)] for kind, each in EVENTS.items()
    }
    assert {kind: names[0] for kind, names in named.items() if names} == PAYLOADS
    assert [kind for kind, names in named.items() if len(names) > 1] == []
    told = {kind: verification._PAYLOADS.get(kind, "result") for kind in PAYLOADS}
    assert told == PAYLOADS
