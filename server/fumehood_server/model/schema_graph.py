"""A JSON Schema as the graph of its subschemas: which look at one value, and which at the values below it.

It has the keywords that the engine honours in a schema of 2020-12, those of older drafts among them. What the engine
might resolve in another way than is told here is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any
from urllib.parse import unquote

from fumehood_server.model.json_pointer import escaped

MAX_SUBSCHEMAS = 5_000
"""A schema with more is refused: it is generated, and could be generated smaller."""

DIALECTS = frozenset(
    {
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2020-12/schema#",
    }
)

UNKNOWN = -1
"""The index of what a reference leads to that leads nowhere."""


class SchemaCostError(ValueError):
    """What a schema costs can't be told, or is too much whatever it is asked. `hint` says what to do."""

    def __init__(self, problem: str, hint: str) -> None:
        """Keep both."""
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


class SchemaTooLargeError(SchemaCostError):
    """A schema has more than `MAX_SUBSCHEMAS` subschemas."""


class _Looks(Enum):
    """What the subschemas of a keyword look at."""

    SAME = auto()
    """At the value that the keyword's own subschema looks at."""
    BELOW = auto()
    """At values directly below: each of them may look at one value."""
    ONE_OF = auto()
    """At values directly below: at most one of them looks at one value."""
    NOWHERE = auto()
    """At nothing, until something refers to them."""


_KEYWORDS: Mapping[str, _Looks] = {
    "allOf": _Looks.SAME,
    "anyOf": _Looks.SAME,
    "oneOf": _Looks.SAME,
    "not": _Looks.SAME,
    "if": _Looks.SAME,
    "then": _Looks.SAME,
    "else": _Looks.SAME,
    "dependentSchemas": _Looks.SAME,
    "dependencies": _Looks.SAME,  # of draft 7, and honoured still
    "additionalProperties": _Looks.BELOW,
    "patternProperties": _Looks.BELOW,
    "propertyNames": _Looks.BELOW,
    "unevaluatedProperties": _Looks.BELOW,
    "items": _Looks.BELOW,
    "additionalItems": _Looks.BELOW,  # of older drafts, which a part can be of (`$schema`)
    "contains": _Looks.BELOW,
    "unevaluatedItems": _Looks.BELOW,
    "properties": _Looks.ONE_OF,
    "prefixItems": _Looks.ONE_OF,
    "$defs": _Looks.NOWHERE,
    "definitions": _Looks.NOWHERE,
    "contentSchema": _Looks.NOWHERE,
}
_BY_NAME = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"},
)
"""Keywords whose subschemas have names. Those of others are one, or stand in an array."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_MEANS_MORE = (*_REFERENCES, *_ANCHORS, "$recursiveAnchor", "$schema", "id")
"""Keywords with which a part that has an `$id` may change what a reference leads to."""
_LEAF = 1
_MAX_SHOWN = 128


class Node:
    """A subschema. What it leads to is named by index."""

    __slots__ = ("around", "below", "one_of", "part", "place", "same", "schema")

    def __init__(self, schema: Mapping[str, Any], place: str, around: Node | None = None) -> None:
        """`place` is its JSON pointer. `around`: the subschema that it stands in, if that is a part or of one."""
        self.schema = schema
        self.place = place
        own = _part(schema, place)
        self.part: str = around.part if around else own
        """Of what it is a part for which `#` has a meaning of its own: the keyword and its place. Empty: of none."""
        self.around: str | None = around.around if around else place if own else None
        """The place of that part. None: it is of none."""
        self.same: list[int] = []
        """By its references as well. May hold `UNKNOWN`."""
        self.below: list[int] = []
        self.one_of: list[int] = []

    @property
    def marks(self) -> bool:
        """Whether all that looks at its value is asked once more, for which properties or items it has evaluated."""
        return "unevaluatedProperties" in self.schema or "unevaluatedItems" in self.schema


def subschemas(schema: Mapping[str, Any]) -> list[Node]:
    """All subschemas, the whole first. `true` and `false` are one of them, the second.

    Raises:
        SchemaCostError: there are too many, or a reference leads to what can't be told, or nowhere.
    """
    nodes = [Node(schema, ""), Node({}, "/")]
    places = {"": 0}
    within: dict[str, str] = {}
    """The part of each place within one."""
    count = 1
    for node in nodes:  # which grows meanwhile
        for keyword, place, each in _held(node):
            count += 1
            if count > MAX_SUBSCHEMAS:
                raise SchemaTooLargeError(f"has more than {MAX_SUBSCHEMAS} subschemas", "say more of them by $ref")
            index = _LEAF
            if isinstance(each, dict):
                index = len(nodes)
                nodes.append(Node(each, place, node if node.part else None))
            places[place] = index
            if node.around is not None:
                within[place] = node.around
            match _KEYWORDS[keyword]:
                case _Looks.SAME:
                    node.same.append(index)
                case _Looks.BELOW:
                    node.below.append(index)
                case _Looks.ONE_OF:
                    node.one_of.append(index)
    if any(keyword in node.schema for node in nodes for keyword in _REFERENCES):
        _refer(nodes, places)
        _refuse_uncertain(nodes, _uncertain(nodes, within))
    return nodes


def _held(node: Node) -> Iterator[tuple[str, str, Any]]:
    """Keyword, place and value of each subschema that stands in one."""
    for keyword, value in node.schema.items():
        if keyword not in _KEYWORDS:
            continue
        if isinstance(value, list):
            yield from ((keyword, f"{node.place}/{keyword}/{number}", each) for number, each in enumerate(value))
        elif keyword not in _BY_NAME:
            yield keyword, f"{node.place}/{keyword}", value
        elif isinstance(value, dict):
            yield from ((keyword, f"{node.place}/{keyword}/{escaped(name)}", each) for name, each in value.items())


def _part(schema: Mapping[str, Any], place: str) -> str:
    """What makes a subschema a resource of its own, or of another dialect."""
    dialect = schema.get("$schema")
    if place and isinstance(schema.get("$id"), str):
        return f"$id in a part of it ({place[:_MAX_SHOWN]})"
    if isinstance(dialect, str) and dialect not in DIALECTS:
        return f"$schema in a part of it ({place[:_MAX_SHOWN] or '/'})"
    return ""


def _refer(nodes: Sequence[Node], places: Mapping[str, int]) -> None:
    anchors: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in {node.schema[each] for each in _ANCHORS if isinstance(node.schema.get(each), str)}:
            anchors[f"#{name}"] = index if f"#{name}" not in anchors else UNKNOWN
    for node in nodes:
        node.same += (_target(node.schema[each], places, anchors) for each in _REFERENCES if each in node.schema)


def _target(reference: object, places: Mapping[str, int], anchors: Mapping[str, int]) -> int:
    if not isinstance(reference, str):
        return UNKNOWN
    if reference == "#" or reference.startswith("#/"):
        return places.get(unquote(reference[1:]), UNKNOWN)
    return anchors.get(reference, UNKNOWN)


def _uncertain(nodes: Sequence[Node], within: Mapping[str, str]) -> set[str]:
    """Places of the parts that may change what a reference leads to.

    An `$id` alone changes none where neither a reference nor an anchor stands in the part, and no pointer leads into
    it, from the whole or, as if that were meant, from the part itself.
    """
    pointers = _pointers(nodes)
    found = {within[each] for each in pointers & within.keys()}
    found |= {part for place, part in within.items() if place[len(part) :] in pointers}
    for node in nodes:
        if node.around is None:
            continue
        is_nested = "$id" in node.schema and node.place != node.around
        if is_nested or "" in pointers or any(each in node.schema for each in _MEANS_MORE):
            found.add(node.around)
    return found


def _pointers(nodes: Sequence[Node]) -> set[str]:
    """What references say that are JSON pointers."""
    texts = [node.schema.get(each) for node in nodes for each in _REFERENCES]
    return {unquote(each[1:]) for each in texts if isinstance(each, str) and (each == "#" or each.startswith("#/"))}


def _refuse_uncertain(nodes: Sequence[Node], parts: set[str]) -> None:
    """By what is reached: the engine looks at nothing else but at what is called as the whole is."""
    seen = {0}
    pending = [0]
    part = ""
    while pending:
        node = nodes[pending.pop()]
        if UNKNOWN in node.same:
            raise _unknown(node.schema)
        part = part or (node.part if node.around in parts else "")
        new = {*node.same, *node.below, *node.one_of} - seen
        seen |= new
        pending += new
    part = part or next((node.part for node in nodes if _may_be_called(node, nodes[0].schema.get("$id"))), "")
    if part:
        raise SchemaCostError(
            f"has {part}, so that what its references lead to can't be told",
            "remove it there: then #/$defs/… and anchors mean the whole schema",
        )


def _may_be_called(node: Node, whole: object) -> bool:
    """Whether the URI of a part may be that of the whole, reached or not: then `#` may mean the part.

    Told by what stands last in their paths, since URIs can be written in many ways.
    """
    named = [node.schema[each] for each in ("$id", "id") if isinstance(node.schema.get(each), str)]
    if not node.part or not node.place or not named:
        return False
    own = _last_segment(whole) if isinstance(whole, str) else None
    return own == "" or any(_last_segment(each) in {"", own} for each in named)


def _last_segment(uri: str) -> str:
    """Of its path. Empty: it has none, or it doesn't tell URIs apart."""
    found = unquote(uri.partition("#")[0]).casefold().rpartition("/")[2]
    return "" if found in {".", ".."} or "?" in found else found


def _unknown(schema: Mapping[str, Any]) -> SchemaCostError:
    texts = [str(schema[each])[:_MAX_SHOWN] for each in _REFERENCES if each in schema]
    shown = " or ".join(f'"{text}"' for text in texts)
    if any(text.startswith("#") for text in texts):
        problem = f"refers to {shown}, which does not exist as a subschema or as the only anchor of that name"
    else:
        problem = f"refers out of itself: {shown}"
    return SchemaCostError(problem, "put it under $defs and refer to #/$defs/…")
