"""Schemas of tools are read once for all runs, and the journal's document of them stays as it was."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace

import orjson
import pytest
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.orchestration import tool_offers
from fumehood_server.orchestration.tool_offers import ToolOffers, tools_document, tools_from_document

from tests.calls.fake import tool

SCHEMA = orjson.dumps({"type": "object", "properties": {"v": {"enum": list(range(1_000))}}}).decode()


def tools(count: int) -> dict[str, RegisteredTool]:
    return {f"t{each}": replace(tool(f"t{each}", schema=SCHEMA), definition_digest=f"d{each}") for each in range(count)}


def test_a_definition_is_read_once_and_another_of_its_name_anew() -> None:
    offers, given = ToolOffers(), tools(5)
    first, again = offers.of(given), offers.of(dict(reversed(given.items())))
    assert [each.tool.name for each in again] == sorted(given)
    assert all(one is other for one, other in zip(first, again, strict=True))
    given["t0"] = replace(tool("t0", schema='{"type":"object"}'), definition_digest="another")
    changed = offers.of(given)
    assert changed[0].tool.parameters == {"type": "object"}
    assert changed[1] is first[1]


def test_the_document_is_that_which_recorded_runs_have() -> None:
    found = ToolOffers().of(tools(3))
    offered = [each.tool for each in found]
    document = tools_document(found)
    data = orjson.dumps([asdict(each) for each in offered], option=orjson.OPT_SORT_KEYS)
    assert (document.digest, document.data) == (hashlib.sha256(data).digest(), data)
    assert list(tools_from_document(document.data)) == offered


def test_no_more_is_kept_than_models_could_be_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_offers, "MAX_KEPT_BYTES", 3 * len(SCHEMA))
    offers, given = ToolOffers(), tools(7)
    first, again = offers.of(given), offers.of(given)
    assert first == again
    kept = sum(one is other for one, other in zip(first, offers.of(given), strict=True))
    assert kept <= 2, "as many as fit"
