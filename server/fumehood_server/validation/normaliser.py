"""Normalises arguments by their JSON Schema: whole numbers without a fraction, and the schema's defaults filled in.

To JSON Schema 5.0 is an integer, and to most readers of typed JSON (Go, Rust, Java) it is none. A `default` is an
annotation, which nobody but the author's own code would read. So both are settled here, once for every kind of plugin.

A number is rewritten wherever a subschema that may apply says "integer": a whole number stands where any number may, so
this never makes a valid document invalid. A default is filled in only where its subschema surely applies: through
`$ref` and `allOf`, and through `anyOf` and `oneOf` where every other branch is refuted by a type, a constant or a name.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from fumehood_server.validation.budget import INLINE, Budget, OverBudgetError
from fumehood_server.validation.filled_defaults import FilledDefaults
from fumehood_server.validation.schema_places import TYPES, Node, build, reachable

MAX_NORMALISED_CHARS = 3 * 1024 * 1024 + 512 * 1024
"""No default makes a text longer: it has to fit into a frame of 4 MiB."""

_PUNCTUATION_BYTES = 4
"""Quotes, colon and comma of a default."""

_NUMBERS_A_LOOK = 16
"""Items of a list of plain numbers, whose types are looked at by the interpreter's own loops."""

_MAX_WHOLE = 2**53 - 1
"""Beyond it a double doesn't tell one whole number from the next: such a number stays as it was written."""

_MAX_CHOICES = 32
"""An `enum` of a union's tag has few; longer ones are not compared."""
_SAFE_DIGITS = 18
"""Integers of so many digits fit into 64 bits, which is what orjson writes."""


class _Written:
    """A number that is handed on as it was written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class _WrittenInteger(_Written):
    """One without a fraction, of too many digits to be touched: nothing looks at it, as nothing looks at an `int`."""

    __slots__ = ()


_FRACTION = re.compile("[0-9][.eE]")
"""Where there is none, there is no number with a fraction or an exponent. There may be some in strings."""

_LONG_NUMBER = re.compile("[0-9]{19}")
"""Where there is none, a reader loses no digit of a whole number."""

_FRACTIONAL = frozenset({float, _Written})
_VISITED = frozenset({dict, list, float, _Written})

_Applied = tuple[Node, bool]
"""A subschema that looks at a value, and whether the value surely has to fit it."""

IsValid = Callable[[str, dict[str, Any], int], bool]
"""`filled_defaults.IsValid`, which is given the arguments as text as well."""


class Normaliser:
    """The places of one schema at which arguments may have to be rewritten."""

    __slots__ = ("_has_defaults", "_root")

    def __init__(self, root: Node) -> None:
        self._root = root
        nodes = reachable(root)
        self._has_defaults = any(node.defaults for node in nodes)
        _make_defaults_whole(nodes)

    def normalise(self, text: str, arguments: dict[str, Any], is_valid: IsValid, budget: Budget) -> str:
        """The text, or another with numbers and defaults settled. `arguments` is what it parses to, and is changed.

        Defaults that don't fit the schema that they stand in, or not beside those before them, are not filled in. Where
        all together is more than `budget`, those of the top level alone are, and the numbers stay.

        Raises:
            OverBudgetError: it is more than `budget`, which says so.
        """
        if not self._has_defaults and not _FRACTION.search(text):
            return text
        budget = replace(budget, filled_bytes=min(budget.filled_bytes, max(MAX_NORMALISED_CHARS - len(text), 0)))
        seen = _Pass(arguments, budget)
        seen.run(self._root)
        if seen.over_budget:
            seen.filled.take_out_below()
        made = self._rewrite(text, seen, budget)
        if not seen.filled:
            return made

        def fits(document: dict[str, Any], times: int) -> bool:
            return is_valid(made, document, times)

        unfit = seen.filled.take_out_unfit(fits, hands_over=budget.hands_over)
        return self._rewrite(text, seen, budget, unfit) if unfit else made

    def _rewrite(self, text: str, seen: _Pass, budget: Budget, unfit: Collection[int] = ()) -> str:
        if (seen.wholes or seen.filled.are_below()) and not seen.over_budget:
            if not _FRACTION.search(text) and not _LONG_NUMBER.search(text):
                return orjson.dumps(seen.document).decode()
            # Once more over the numbers as they were written, so that none of the others loses a digit. This looks at
            # no more values than before, and so ends within the budget.
            exact = json.loads(text, parse_float=_Written, parse_int=_parse_int)
            again = _Pass(exact, budget)
            again.run(self._root)
            again.filled.take_out(unfit)
            return orjson.dumps(exact, default=_write).decode()
        if not (outermost := seen.filled.outermost()):
            return text
        more = orjson.dumps(outermost).decode()[1:]
        before = text.rstrip()[:-1].rstrip()
        return f"{before}{'' if before.endswith('{') else ','}{more}"


def make_normaliser(schema: Mapping[str, Any]) -> Normaliser | None:
    """The normaliser of a schema; None where it has neither integers nor defaults."""
    root = build(schema)
    return None if root is None else Normaliser(root)


def _make_defaults_whole(nodes: Iterable[Node]) -> None:
    """Write the numbers of defaults as those of arguments are, as far as `INLINE.looks` go."""
    seen = _Pass({}, INLINE)
    with contextlib.suppress(OverBudgetError):
        for node in nodes:
            for name, (default, size) in node.defaults.items():
                below = node.properties.get(name)
                if below is not None and _FRACTION.search(json.dumps(default)):
                    node.defaults[name] = (seen.made_whole(default, below), size)


class _Pass:
    """One walk over one document, which is changed in place."""

    __slots__ = (
        "_budget",
        "_closures",
        "_filled_bytes",
        "_looks",
        "document",
        "filled",
        "over_budget",
        "wholes",
    )

    def __init__(self, document: dict[str, Any], budget: Budget) -> None:
        self.document = document
        self._budget = budget
        self._closures: dict[tuple[_Applied, ...], list[_Applied]] = {}
        """What `_closure` found, by what is applied, where that is the same for every value."""
        self._looks = self._filled_bytes = 0
        self.over_budget = False
        self.wholes = 0
        """Numbers that were rewritten."""
        self.filled = FilledDefaults(document)

    def made_whole(self, value: Any, node: Node) -> Any:  # noqa: ANN401 - any JSON value
        """A value by itself, which is changed in place.

        Raises:
            OverBudgetError: it and those before it take more looks than the budget has.
        """
        return self._visit(value, [(node, False)])

    def run(self, root: Node) -> None:
        """Walk until the end or the budget's."""
        try:
            self._visit(self.document, [(root, True)])
        except OverBudgetError:
            if self._budget.hands_over:
                raise
            self.over_budget = True

    def _visit(self, value: Any, applied: list[_Applied]) -> Any:  # noqa: ANN401 - any JSON value
        """The value that stands in its place. Documents are at most 64 deep (`strict_json`), and so is this."""
        if type(value) is list:
            if value:
                self._visit_array(value, self._closure(value, applied))
        elif type(value) is dict:
            self._visit_object(value, self._closure(value, applied))
        elif type(value) in _FRACTIONAL and any(node.whole for node, _ in self._closure(value, applied)):
            return self._whole(value)
        return value

    def _closure(self, value: Any, applied: list[_Applied]) -> list[_Applied]:  # noqa: ANN401 - any JSON value
        """The nodes that look at the same value, each once: the sure ones first, since a node may be both."""
        key = tuple(applied)
        nodes = self._closures.get(key)
        if nodes is None:
            nodes, depends_on_value = self._close(value, applied)
            if not depends_on_value:
                self._closures[key] = nodes
        self._count(len(nodes) * (1 + len(value)) if type(value) is dict else len(nodes))
        return nodes

    def _close(self, value: Any, applied: list[_Applied]) -> tuple[list[_Applied], bool]:  # noqa: ANN401 - any JSON value
        found: dict[int, _Applied] = {}
        size = len(value) if type(value) is dict else 0
        sure_ones = [node for node, sure in applied if sure]
        maybe_ones = [node for node, sure in applied if not sure]
        depends_on_value = False
        while sure_ones:
            node = sure_ones.pop()
            if id(node) in found:
                continue
            found[id(node)] = (node, True)
            sure_ones += node.sure
            maybe_ones += node.maybe
            for group in node.branches:
                depends_on_value = True
                self._count(len(group) * (1 + size))
                left = [branch for keywords, branch in group if not _is_refuted(value, keywords)]
                (sure_ones if len(left) == 1 else maybe_ones).extend(left)
        while maybe_ones:
            node = maybe_ones.pop()
            if id(node) in found:
                continue
            found[id(node)] = (node, False)
            maybe_ones += node.sure
            maybe_ones += node.maybe
            maybe_ones += (branch for group in node.branches for _, branch in group)
        return list(found.values()), depends_on_value

    def _count(self, looks: int) -> None:
        self._looks += looks
        if self._looks > self._budget.looks:
            raise OverBudgetError

    def _whole(self, value: float | _Written) -> object:
        number = float(value.text) if type(value) is _Written else value
        if not isinstance(number, float) or not number.is_integer() or abs(number) > _MAX_WHOLE:
            return value
        self.wholes += 1
        return int(number)

    def _visit_object(self, value: dict[str, Any], nodes: list[_Applied]) -> None:
        below: dict[str, list[_Applied]] = {}
        for node, sure in nodes:
            for name in node.properties.keys() & value.keys():
                below.setdefault(name, []).append((node.properties[name], sure))
            if node.additional is not None or node.others:
                self._count(len(value))
                may = _unnamed(node, sure=sure)
                for name in value.keys() - node.names:
                    below.setdefault(name, []).extend(may)
        for node, sure in nodes:
            if sure and node.defaults:
                self._fill_in(value, node.defaults)
        for name, applied in below.items():
            old = value[name]
            if type(old) in _VISITED:
                value[name] = self._visit(old, applied)

    def _fill_in(self, value: dict[str, Any], defaults: Mapping[str, tuple[Any, int]]) -> None:
        self._count(len(defaults))
        for name, each in defaults.items():
            if name in value:
                continue
            self._filled_bytes += len(name) + each[1] + _PUNCTUATION_BYTES
            if self._filled_bytes > self._budget.filled_bytes:
                raise OverBudgetError
            self.filled.fill_in(value, name, each)

    def _visit_array(self, value: list[Any], nodes: list[_Applied]) -> None:
        start = max((len(node.prefix) for node, _ in nodes), default=0)
        for index in range(min(start, len(value))):
            applied = [(node.prefix[index], sure) for node, sure in nodes if index < len(node.prefix)]
            applied += _items((node, sure) for node, sure in nodes if index >= len(node.prefix))
            value[index] = self._visit(value[index], applied)
        applied = _items(nodes)
        if not applied:
            return
        if all(node.is_leaf() for node, _ in applied):
            self._count(len(value) // _NUMBERS_A_LOOK)
            if any(node.whole for node, _ in applied) and not _FRACTIONAL.isdisjoint(map(type, value)):
                self._count(len(value))
                value[start:] = [self._whole(each) if type(each) in _FRACTIONAL else each for each in value[start:]]
            return
        for index in range(start, len(value)):
            value[index] = self._visit(value[index], applied)


def _unnamed(node: Node, *, sure: bool) -> list[_Applied]:
    """What looks at each property that a node doesn't name."""
    found = [(each, False) for each in node.others]
    if node.additional is not None:
        found.append((node.additional, sure and not node.has_patterns))
    return found


def _items(nodes: Iterable[_Applied]) -> list[_Applied]:
    found: list[_Applied] = []
    for node, sure in nodes:
        if node.items is not None:
            found.append((node.items, sure))
        found += ((each, False) for each in node.others)
    return found


def _is_refuted(value: Any, keywords: Mapping[str, Any]) -> bool:  # noqa: ANN401 - any JSON value
    """Whether a value surely doesn't fit a subschema with these keywords. False says nothing."""
    named = keywords.get("type")
    if isinstance(named, str | list):
        kinds = [TYPES.get(each, ()) for each in ([named] if isinstance(named, str) else named)]
        kind_of_value = float if isinstance(value, _Written) else type(value)
        if not any(kind_of_value in kind for kind in kinds):
            return True
    if type(value) is not dict:
        return False
    required, properties = keywords.get("required"), keywords.get("properties")
    if isinstance(required, list) and any(name not in value for name in required):
        return True
    if not isinstance(properties, dict):
        return False
    closed = keywords.get("additionalProperties") is False and "patternProperties" not in keywords
    if closed and any(name not in properties for name in value):
        return True
    return any(_is_other_constant(value[name], properties[name]) for name in value.keys() & properties.keys())


def _is_other_constant(value: Any, schema: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether a text isn't the one, or none of those, that a schema names: what tells the members of a union apart."""
    if type(value) is not str or not isinstance(schema, dict):
        return False
    if "const" in schema:
        return bool(schema["const"] != value)
    choices = schema.get("enum")
    return isinstance(choices, list) and len(choices) <= _MAX_CHOICES and value not in choices


def _parse_int(text: str) -> int | _WrittenInteger:
    return int(text) if len(text) <= _SAFE_DIGITS else _WrittenInteger(text)


def _write(value: object) -> orjson.Fragment:
    if isinstance(value, _Written):
        return orjson.Fragment(value.text)
    raise TypeError(type(value).__name__)
