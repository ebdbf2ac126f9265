"""The defaults that were filled into one document, and which of them fit there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fumehood_server.validation.budget import OverBudgetError

IsValid = Callable[[dict[str, Any], int], bool]
"""Whether the document fits the schema. The number says how often it was asked, this time included.

Raises OverBudgetError where so many times take too long."""


@dataclass(frozen=True, slots=True)
class _Filled:
    """One default of the schema and the objects that it was filled into."""

    name: str
    value: Any
    places: list[dict[str, Any]] = field(default_factory=list)


class FilledDefaults:
    """Fills defaults into a document, and takes them out again."""

    __slots__ = ("_document", "_filled")

    def __init__(self, document: dict[str, Any]) -> None:
        """None yet. `document` is changed in place."""
        self._document = document
        self._filled: dict[int, _Filled] = {}
        """By the identity of the default in the schema. Those of the top level come first."""

    def __bool__(self) -> bool:
        return bool(self._filled)

    def fill_in(self, place: dict[str, Any], name: str, default: tuple[Any, int]) -> None:
        """Fill in one of `Node.defaults`. The same default may come for several places."""
        place[name] = default[0]
        self._filled.setdefault(id(default), _Filled(name, default[0])).places.append(place)

    def outermost(self) -> dict[str, Any]:
        """Those of the top level, by their names."""
        return {each.name: each.value for each in self._filled.values() if each.places[0] is self._document}

    def are_below(self) -> bool:
        """Whether there are others than those of the top level."""
        return any(place is not self._document for each in self._filled.values() for place in each.places)

    def take_out(self, unfit: Iterable[int]) -> None:
        """Take these out of the document, as another document's `take_out_unfit` named them."""
        self._leave_out(unfit)
        for key in unfit:
            del self._filled[key]

    def take_out_below(self) -> None:
        """Leave only those of the top level."""
        for key, each in [*self._filled.items()]:
            for place in each.places:
                if place is not self._document:
                    del place[each.name]
            each.places[:] = [place for place in each.places if place is self._document]
            if not each.places:
                del self._filled[key]

    def take_out_unfit(self, is_valid: IsValid, *, hands_over: bool) -> frozenset[int]:
        """Take out those with which the document isn't valid, and return which. One that fits somewhere else goes too.

        They are tried by halves, the first ones first, so that a few among many are found by few looks. Where that
        takes too long, all go that were not found to fit.

        Raises:
            OverBudgetError: it takes too long, and the budget hands over.
        """
        unfit: list[int] = []
        group: tuple[int, ...] = ()
        pending = [tuple(self._filled)]
        asked = 0
        try:
            while pending:
                group = pending.pop()
                if asked:
                    self._put_in(group)
                asked += 1
                if is_valid(self._document, asked):
                    continue
                self._leave_out(group)
                if len(group) == 1:
                    unfit += group
                else:
                    middle = len(group) // 2
                    pending += (group[middle:], group[:middle])
        except OverBudgetError:
            if hands_over:
                raise
            self._leave_out(group)
            unfit += (*group, *(key for rest in pending for key in rest))
        for key in unfit:
            del self._filled[key]
        return frozenset(unfit)

    def _put_in(self, keys: Iterable[int]) -> None:
        for each in map(self._filled.__getitem__, keys):
            for place in each.places:
                place[each.name] = each.value

    def _leave_out(self, keys: Iterable[int]) -> None:
        for each in map(self._filled.__getitem__, keys):
            for place in each.places:
                del place[each.name]
