"""The queue of the validator process: whoever has many connections or tools has one turn at the outermost level."""

from __future__ import annotations

from fumehood_server.calls.round_robin import KeyPath, RoundRobin
from fumehood_server.model.caller import Caller


def taken(*paths: KeyPath) -> list[KeyPath]:
    """The order in which items of these paths, queued in this order, have their turns."""
    queue: RoundRobin[KeyPath] = RoundRobin()
    for path in paths:
        queue.put(path, path)
    order = []
    while queue:
        order.append(queue.take())
    return order


def test_many_connections_and_many_tools_have_one_turn_among_the_callers() -> None:
    connections = [("many", f"c{number}", "t") for number in range(9)]
    tools = [("deep", "c", f"t{number}") for number in range(9)]
    few = ("few", "c", "t")
    order = taken(*connections, *tools, few, few)
    assert order[2] == few
    assert order[5] == few
    assert len(order) == 20


def test_the_keys_beneath_one_take_turns_among_themselves() -> None:
    often, other = ("a", "c1", "t"), ("a", "c2", "t")
    assert taken(often, often, often, other) == [often, other, often, often]
    assert taken(*[("a", "c1", f"t{number}") for number in range(3)], other)[1] == other


def test_whoever_is_alone_has_all_the_turns_in_their_order() -> None:
    queue: RoundRobin[int] = RoundRobin()
    for number in range(5):
        queue.put(("a", "c"), number)
    queue.remove(("a", "c"), 3)
    queue.remove(("a", "c"), 3)
    queue.remove(("b", "c"), 0)
    assert [queue.take() for _ in range(4)] == [0, 1, 2, 4]
    queue.put(("a", "c"), 5)
    queue.remove(("a", "c"), 5)
    assert not queue


def test_a_caller_takes_turns_by_its_name_or_else_with_all_who_come_as_it_does() -> None:
    def outermost(connection: str, name: str = "") -> str:
        path = Caller(name=name, connection=connection).turn_path
        assert path[1] == connection
        return path[0]

    assert outermost("ipv4:127.0.0.1:1") == outermost("ipv4:127.0.0.1:2") == outermost("ipv4:127.9.9.9:1")
    assert outermost("ipv4:10.0.0.1:1", "svc") == outermost("unix:", "svc") == "svc"
    others = [outermost("unix:"), outermost("unix:", "unix"), outermost("ipv4:127.0.0.1:1"), outermost("mcp:[::1]:1")]
    assert len(set(others)) == 4
