"""What docs/mcp-server.md tells of the official conformance suite, and what its target holds."""

from __future__ import annotations

from tests.mcp_conformance.left import documented, left_scenarios


def test_the_page_names_the_scenarios_that_are_left_and_no_others() -> None:
    assert documented() == left_scenarios()
    assert left_scenarios()
