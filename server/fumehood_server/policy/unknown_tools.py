"""Rules that name tools that there are not. A misspelt one restricts nothing, and nobody would be told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from fumehood_server.model.nearest import nearest
from fumehood_server.model.policy import Rule

MAX_NOTES = 20


def unknown_tools(rules: Iterable[Rule], names: Collection[str]) -> list[str]:
    """A sentence for each name in a rule's `tools` that fits none of these tools; the first `MAX_NOTES`.

    Takes long for many: not for the event loop.
    """
    return list(islice(_sentences(rules, frozenset(names)), MAX_NOTES))


def _sentences(rules: Iterable[Rule], names: frozenset[str]) -> Iterator[str]:
    for rule in rules:
        for wanted in rule.tools:
            if wanted.endswith("*"):
                if not any(name.startswith(wanted[:-1]) for name in names):
                    yield f'[[policy.rule]] {rule.name}: the name of no tool begins as "{wanted}" says'
            elif wanted not in names:
                hint = nearest(wanted, sorted(names))
                yield f'[[policy.rule]] {rule.name}: no tool is called "{wanted}"{hint and f": {hint}"}'


__all__ = ["MAX_NOTES", "unknown_tools"]
