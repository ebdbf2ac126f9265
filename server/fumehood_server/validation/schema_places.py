"""The places of a JSON Schema at which there are integers or defaults, as a graph of its subschemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from fumehood_server.model.json_pointer import unescaped

_MAX_DEFAULT_BYTES = 16 * 1024
_MAX_REFERENCES = 8
"""References followed one after the other to a default, or to the keywords that tell branches apart."""
_MAYBE = ("if", "then", "else")
_OTHERS = ("contains", "unevaluatedItems", "unevaluatedProperties")

TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int, float),
}


class Node:
    """One subschema, by what matters here. `sure` subschemas apply to the same value, `maybe` ones may."""

    __slots__ = (
        "additional",
        "branches",
        "defaults",
        "has_patterns",
        "items",
        "maybe",
        "names",
        "others",
        "prefix",
        "properties",
        "sure",
        "whole",
    )

    def __init__(self) -> None:
        self.whole = False
        """Numbers here are written without a fraction where they have none."""
        self.defaults: dict[str, tuple[Any, int]] = {}
        """Value and size in bytes, by the property's name."""
        self.properties: dict[str, Node] = {}
        self.names: frozenset[str] = frozenset()
        """All names of the schema's `properties`, those without a node included."""
        self.additional: Node | None = None
        """Applies to each property that is none of `names`, unless a pattern matches it."""
        self.has_patterns = False
        self.others: list[Node] = []
        """May apply to any value below: `patternProperties`, `contains`, the unevaluated ones."""
        self.prefix: list[Node] = []
        self.items: Node | None = None
        """Applies to each item after `prefix`."""
        self.sure: list[Node] = []
        self.maybe: list[Node] = []
        self.branches: list[list[tuple[Mapping[str, Any], Node]]] = []
        """The branches of each `anyOf` and `oneOf`, each with its keywords, references followed."""

    def is_leaf(self) -> bool:
        """Whether it says nothing of values below."""
        below = self.properties or self.additional or self.others or self.prefix or self.items or self.defaults
        return not (below or self.sure or self.maybe or self.branches)

    def edges(self) -> Iterator[Node]:
        """Every node that it refers to."""
        yield from self.properties.values()
        yield from (*self.others, *self.prefix, *self.sure, *self.maybe)
        yield from (each for each in (self.additional, self.items) if each is not None)
        yield from (branch for group in self.branches for _, branch in group)

    def keep(self, nodes: set[Node]) -> None:
        """Drop the edges to all others, but for the places of `prefix` and the members of a union."""
        self.properties = {name: each for name, each in self.properties.items() if each in nodes}
        self.others = [each for each in self.others if each in nodes]
        self.sure = [each for each in self.sure if each in nodes]
        self.maybe = [each for each in self.maybe if each in nodes]
        self.additional = self.additional if self.additional in nodes else None
        self.items = self.items if self.items in nodes else None
        self.branches = [group for group in self.branches if any(branch in nodes for _, branch in group)]


def build(schema: Mapping[str, Any]) -> Node | None:
    """The node of the whole schema, which has passed `check_schema`; None where nothing in it matters here."""
    root = _Builder(schema).build()
    return root if root in _prune(root) else None


class _Builder:
    """Makes one node for each subschema, so that a schema may refer to itself."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._made: dict[int, Node] = {}
        self._pending: list[tuple[Node, Mapping[str, Any]]] = []
        self._anchors: dict[str, Any] | None = {}
        """None where a part of the schema has an `$id` of its own: then `#` doesn't mean the whole."""
        for each in _objects(root):
            if "$id" in each and each is not root:
                self._anchors = None
                break
            self._anchors[f"#{each.get('$anchor')}"] = each

    def build(self) -> Node:
        """The root's node, and by it all others."""
        made = self._node(self._root)
        # No recursion: a chain of references may be as long as the schema.
        while self._pending:
            self._fill(*self._pending.pop())
        return made

    def _node(self, schema: Any) -> Node:  # noqa: ANN401 - any JSON
        made = self._made.get(id(schema))
        if made is None:
            made = self._made[id(schema)] = Node()
            if isinstance(schema, dict):
                self._pending.append((made, schema))
        return made

    def _fill(self, node: Node, schema: Mapping[str, Any]) -> None:
        kinds = schema.get("type")
        node.whole = "integer" in (kinds if isinstance(kinds, list) else [kinds])
        for name, each in _mapping(schema, "properties"):
            node.properties[name] = self._node(each)
            default = self._default(each)
            if default is not None:
                node.defaults[name] = default
        node.names = frozenset(node.properties)
        node.has_patterns = bool(schema.get("patternProperties"))
        node.others = [self._node(each) for _, each in _mapping(schema, "patternProperties")]
        node.others += (self._node(schema[key]) for key in _OTHERS if key in schema)
        node.prefix = [self._node(each) for each in _list(schema, "prefixItems")]
        node.items = self._node(schema["items"]) if "items" in schema else None
        node.additional = self._node(schema["additionalProperties"]) if "additionalProperties" in schema else None
        node.sure = [self._node(each) for each in _list(schema, "allOf")]
        if "$ref" in schema:
            node.sure.append(self._node(self._target(schema["$ref"])))
        node.maybe = [self._node(schema[key]) for key in _MAYBE if key in schema]
        node.maybe += (self._node(each) for _, each in _mapping(schema, "dependentSchemas"))
        for key in ("anyOf", "oneOf"):
            if branches := _list(schema, key):
                node.branches.append([(self._keywords(each), self._node(each)) for each in branches])

    def _default(self, schema: Any) -> tuple[Any, int] | None:  # noqa: ANN401 - any JSON
        """The default of a property, its own or that of what it refers to; None also where it is of a wrong type."""
        keywords = self._keywords(schema)
        if "default" not in keywords:
            return None
        default = keywords["default"]
        named = keywords.get("type")
        kinds = [TYPES.get(each, ()) for each in (named if isinstance(named, list) else [named] if named else [])]
        size = len(json.dumps(default))
        fits = not kinds or any(type(default) in kind for kind in kinds)
        return (default, size) if fits and size <= _MAX_DEFAULT_BYTES else None

    def _keywords(self, schema: Any) -> Mapping[str, Any]:  # noqa: ANN401 - any JSON
        """The keywords of a subschema and of what it refers to; its own hold."""
        found: dict[str, Any] = {}
        for _ in range(_MAX_REFERENCES):
            if not isinstance(schema, dict):
                break
            found = {**schema, **found}
            if "$ref" not in schema:
                break
            schema = self._target(schema["$ref"])
        return found

    def _target(self, reference: object) -> Any:  # noqa: ANN401 - any JSON
        """What a reference leads to; a schema of anything where that isn't known."""
        if self._anchors is None or not isinstance(reference, str):
            return True
        text = unquote(reference)
        if text != "#" and not text.startswith("#/"):
            return self._anchors.get(text, True)
        at: Any = self._root
        for step in text.split("/")[1:]:
            key = unescaped(step)
            if isinstance(at, dict) and key in at:
                at = at[key]
            elif isinstance(at, list) and key.isdecimal() and int(key) < len(at):
                at = at[int(key)]
            else:
                return True
        return at


def reachable(root: Node) -> list[Node]:
    """The node and all that it leads to, in an order that only the schema decides."""
    found, pending = {root: None}, [root]
    while pending:
        new = [each for each in pending.pop().edges() if each not in found]
        found.update(dict.fromkeys(new))
        pending += new
    return [*found]


def _prune(root: Node) -> set[Node]:
    """Take out the edges to nodes from which nothing that matters is reached, and return those that matter."""
    users: dict[Node, list[Node]] = {root: []}
    pending = [root]
    while pending:
        node = pending.pop()
        for below in node.edges():
            if below not in users:
                users[below] = []
                pending.append(below)
            users[below].append(node)
    matter: set[Node] = set()
    pending = [node for node in users if node.whole or node.defaults]
    while pending:
        node = pending.pop()
        if node not in matter:
            matter.add(node)
            pending += users[node]
    for node in users:
        node.keep(matter)
    return matter


def _objects(schema: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - any JSON
    pending = [schema]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            yield each
            pending += each.values()
        elif isinstance(each, list):
            pending += each


def _mapping(schema: Mapping[str, Any], key: str) -> Iterator[tuple[str, Any]]:
    value = schema.get(key)
    return iter(value.items() if isinstance(value, dict) else ())


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []
