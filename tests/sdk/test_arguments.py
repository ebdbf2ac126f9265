"""Arguments are checked as JSON Schema reads them, whoever makes the schema."""

from __future__ import annotations

from datetime import date
from ipaddress import IPv4Address, ip_network
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from fumehood_sdk import Field, Plugin
from fumehood_sdk.testing import CallResult, ToolTester
from pydantic import AfterValidator, BaseModel, Discriminator

plugin = Plugin("trial", version="1")


class Order(BaseModel):
    amount: int
    day: date = date(2026, 1, 1)


@plugin.tool(side_effects="none")
def plain(
    count: Annotated[int, Field(ge=1, le=10)],
    ratio: float = 0.5,
    sides: Literal[4, 6] = 6,
    tags: Annotated[list[str], Field(max_length=2)] | None = None,
) -> list[Any]:
    """Return what came."""
    return [count, ratio, sides, tags]


@plugin.tool(side_effects="none")
def modelled(order: Order, count: Annotated[int, Field(ge=1, le=10)] = 1, schema: str = "s") -> list[Any]:
    """Return what came."""
    return [order.amount, order.day.isoformat(), count, schema]


def called(tool: str, arguments_json: str) -> CallResult:
    return ToolTester(plugin).call_json(tool, arguments_json)


@pytest.mark.parametrize(
    ("tool", "arguments", "details"),
    [
        ("plain", '{"count": 3}', [3, 0.5, 6, None]),
        ("plain", '{"count": 3.0, "sides": 4.0}', [3, 0.5, 4, None]),
        ("plain", '{"count": 3, "ratio": 2}', [3, 2.0, 6, None]),
        ("plain", '{"count": 3, "tags": ["a"]}', [3, 0.5, 6, ["a"]]),
        ("modelled", '{"order": {"amount": 2.0, "day": "2026-02-03"}}', [2, "2026-02-03", 1, "s"]),
        ("modelled", '{"order": {"amount": 2}, "schema": "t", "count": 4}', [2, "2026-01-01", 4, "t"]),
    ],
)
def test_valid_arguments_arrive_as_their_types(tool: str, arguments: str, details: list[Any]) -> None:
    result = called(tool, arguments)
    assert result.error is None
    assert result.details == details


@pytest.mark.parametrize(
    ("tool", "arguments", "entries"),
    [
        ("plain", "{}", [("/count", "required")]),
        ("plain", "", [("/count", "required")]),
        ("plain", '{"count": "3"}', [("/count", "type")]),
        ("plain", '{"count": true}', [("/count", "type")]),
        ("plain", '{"count": 3.5}', [("/count", "type")]),
        ("plain", '{"count": 11.0}', [("/count", "maximum")]),
        ("plain", '{"count": null}', [("/count", "type")]),
        ("plain", '{"count": 0, "sides": 5}', [("/count", "minimum"), ("/sides", "enum")]),
        ("plain", '{"count": 1, "a/b~c": 1}', [("/a~1b~0c", "additionalProperties")]),
        ("plain", '{"count": 1, "tags": ["a", 2]}', [("/tags/1", "type")]),
        ("plain", '{"count": 1, "tags": ["a", "b", "c"]}', [("/tags", "maxItems")]),
        ("plain", '{"count": 1, "ratio": "x"}', [("/ratio", "type")]),
        ("plain", "[]", [("", "type")]),
        ("plain", '{"count": 1', [("", "json")]),
        ("modelled", '{"order": {"amount": "2"}}', [("/order/amount", "type")]),
        ("modelled", '{"order": {}, "count": 0}', [("/order/amount", "required"), ("/count", "minimum")]),
        ("modelled", '{"order": {"amount": 1}, "x": 1}', [("/x", "additionalProperties")]),
        ("modelled", '{"argument_0": {}}', [("/order", "required"), ("/argument_0", "additionalProperties")]),
        ("modelled", "7", [("", "type")]),
    ],
)
def test_each_wrong_argument_is_named(tool: str, arguments: str, entries: list[tuple[str, str]]) -> None:
    error = called(tool, arguments).error
    assert error is not None
    assert error.reason == "invalid_arguments"
    assert not error.retryable
    assert [(entry["pointer"], entry["rule"]) for entry in error.details["arguments"]] == entries
    assert all(entry["message"] for entry in error.details["arguments"])


class Circle(BaseModel):
    shape: Literal["circle"]


class Square(BaseModel):
    shape: Literal["square"]


@plugin.tool(side_effects="none")
def typed(
    name: UUID,
    address: IPv4Address,
    octets: IPv4Address,
    figure: Annotated[Circle | Square, Discriminator("shape")],
    network: Annotated[str, AfterValidator(ip_network)],
) -> None:
    """Take types whose errors quote the input, or a part of it."""


def test_no_value_is_told_where_a_type_s_own_error_quotes_it() -> None:
    secret = "SECRET"  # noqa: S105 - stands for one
    arguments = {
        "name": secret,
        "address": secret,
        "octets": f"{secret}.1.1.1",
        "figure": {"shape": secret},
        "network": secret,
    }
    error = ToolTester(plugin).call("typed", **arguments).error
    assert error is not None
    told = {entry["pointer"]: entry["message"] for entry in error.details["arguments"]}
    assert told == {
        "/name": "Input should be a valid UUID",
        "/address": "Value error, not a value of this type",
        "/octets": "Value error, not a value of this type",
        "/figure": "'shape' should be one of 'circle', 'square'",
        "/network": "Value error, the value does not appear to be an IPv4 or IPv6 network",
    }
    assert secret not in error.message


def test_no_more_than_twenty_are_named() -> None:
    error = called("plain", "{" + ", ".join(f'"x{number}": 1' for number in range(100)) + "}").error
    assert error is not None
    assert len(error.details["arguments"]) == 20


def test_a_default_that_is_changed_in_one_call_is_fresh_in_the_next() -> None:
    other = Plugin("other", version="1")

    @other.tool(side_effects="none")
    def collect(into: list[int] = []) -> list[int]:  # noqa: B006
        """Collect."""
        into.append(1)
        return into

    tester = ToolTester(other)
    assert tester.call("collect").details == [1]
    assert tester.call("collect").details == [1]
