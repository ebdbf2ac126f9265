"""Round robin: a queue in which each key has its turn, whatever the others have queued."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class RoundRobin(Generic[_Item]):
    """Items of one key are first come, first served; keys take turns, one item each."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        """Nothing yet."""
        self._queues: OrderedDict[str, deque[_Item]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def put(self, key: str, item: _Item) -> None:
        """Queue an item behind those of its key."""
        self._queues.setdefault(key, deque()).append(item)

    def take(self) -> _Item:
        """The first item of the key whose turn it is. There must be one."""
        key, queue = self._queues.popitem(last=False)
        item = queue.popleft()
        if queue:
            self._queues[key] = queue
        return item

    def remove(self, key: str, item: _Item) -> None:
        """Take out an item that nobody wants any more, if it is still there."""
        queue = self._queues.get(key)
        if queue is None or item not in queue:
            return
        queue.remove(item)
        if not queue:
            del self._queues[key]
