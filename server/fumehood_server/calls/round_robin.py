"""Hierarchical round robin: a queue in which each key has its turn at each level, whatever the others have queued."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

_Item = TypeVar("_Item")

KeyPath = tuple[str, ...]
"""Keys, outermost first: all that share a key share one turn among the other keys of its level."""


class RoundRobin(Generic[_Item]):
    """Items of one path are first come, first served; the keys of a level take turns, one item each.

    Where a path is the beginning of another, its items go first: so paths that share a key have one length.
    """

    __slots__ = ("_beneath", "_own")

    def __init__(self) -> None:
        """Nothing yet."""
        self._own: deque[_Item] = deque()
        self._beneath: OrderedDict[str, RoundRobin[_Item]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._own or self._beneath)

    def put(self, path: KeyPath, item: _Item) -> None:
        """Queue an item behind those of its path."""
        if path:
            self._beneath.setdefault(path[0], RoundRobin()).put(path[1:], item)
        else:
            self._own.append(item)

    def take(self) -> _Item:
        """The first item of the path whose turn it is. There must be one."""
        if self._own:
            return self._own.popleft()
        key, queue = self._beneath.popitem(last=False)
        item = queue.take()
        if queue:
            self._beneath[key] = queue
        return item

    def remove(self, path: KeyPath, item: _Item) -> None:
        """Take out an item that nobody wants any more, if it is still there."""
        if not path:
            if item in self._own:
                self._own.remove(item)
            return
        queue = self._beneath.get(path[0])
        if queue is not None:
            queue.remove(path[1:], item)
            if not queue:
                del self._beneath[path[0]]
