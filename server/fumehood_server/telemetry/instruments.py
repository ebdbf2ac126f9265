"""Metric instruments: counters, gauges and histograms with explicit buckets, aggregated in place by the event loop.

Written by one thread, the loop's, and read by others without a lock: each point is replaced or copied in one step of
the interpreter. OpenTelemetry's own instruments take some ten times as long for each value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

MAX_SERIES = 1000
"""Of one instrument. What comes after is counted together."""
OTHER = "_OTHER"
"""Stands for a value that is not known here, in the words of OpenTelemetry's conventions."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
"""Upper bounds of buckets, in seconds."""

TOKENS = tuple(float(4**power) for power in range(14))
"""Upper bounds of buckets of tokens, by OpenTelemetry's conventions for GenAI: from 1 to 67,108,864."""

Key = tuple[str, ...]


class Kind(Enum):
    """What the values of an instrument mean."""

    COUNTER = auto()
    GAUGE = auto()
    HISTOGRAM = auto()


@dataclass(frozen=True, slots=True)
class Definition:
    """Name, unit (UCUM) and the attributes of each value."""

    name: str
    kind: Kind
    unit: str
    description: str
    attributes: Key = ()
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """One point of a histogram."""

    buckets: tuple[int, ...]
    """Counts of the definition's bounds, each bucket's own, and of what is above the last."""
    sum: float

    @property
    def count(self) -> int:
        """How many values."""
        return sum(self.buckets)


@dataclass(frozen=True, slots=True)
class Family:
    """All points of one instrument at one time."""

    definition: Definition
    points: Mapping[Key, float | Distribution]


class Counter:
    """A sum that only grows, by its attributes' values."""

    __slots__ = ("_points", "definition")

    def __init__(self, name: str, unit: str, description: str, *attributes: str) -> None:
        self.definition = Definition(name, Kind.COUNTER, unit, description, attributes)
        self._points: dict[Key, float] = {} if attributes else {(): 0}

    def add(self, *key: str) -> None:
        """Count one."""
        points = self._points
        if key not in points and len(points) >= MAX_SERIES:
            key = (OTHER,) * len(key)
        points[key] = points.get(key, 0) + 1

    def set_total(self, total: float, *key: str) -> None:
        """Take over a sum that is kept elsewhere."""
        if key in self._points or len(self._points) < MAX_SERIES:
            self._points[key] = total

    def family(self) -> Family:
        """The points now. For any thread."""
        return Family(self.definition, self._points.copy())


class Gauge:
    """A value that is sampled."""

    __slots__ = ("_points", "definition")

    def __init__(self, name: str, unit: str, description: str, *attributes: str) -> None:
        self.definition = Definition(name, Kind.GAUGE, unit, description, attributes)
        self._points: dict[Key, float] = {}

    def set(self, value: float) -> None:
        """The one value of a gauge without attributes."""
        self._points = {(): value}

    def set_all(self, points: Mapping[Key, float]) -> None:
        """All values."""
        self._points = dict(list(points.items())[:MAX_SERIES])

    def family(self) -> Family:
        """The points now. For any thread."""
        return Family(self.definition, self._points)


class Histogram:
    """Durations in seconds, or other values, by their attributes' values."""

    __slots__ = ("_bounds", "_points", "definition")

    def __init__(
        self, name: str, description: str, *attributes: str, unit: str = "s", bounds: tuple[float, ...] = SECONDS
    ) -> None:
        self.definition = Definition(name, Kind.HISTOGRAM, unit, description, attributes, bounds)
        self._bounds = bounds
        self._points: dict[Key, list[float]] = {}
        """Counts of the buckets, and the sum after them."""

    def record(self, value: float, *key: str) -> None:
        """Count one."""
        points = self._points
        point = points.get(key)
        if point is None:
            if len(points) >= MAX_SERIES:
                key = (OTHER,) * len(key)
            point = points.setdefault(key, [0] * (len(self._bounds) + 1) + [0.0])
        point[bisect_left(self._bounds, value)] += 1
        point[-1] += value

    def family(self) -> Family:
        """The points now. For any thread."""
        points = {key: _distribution(point.copy()) for key, point in self._points.copy().items()}
        return Family(self.definition, points)


def _distribution(point: list[float]) -> Distribution:
    return Distribution(tuple(int(count) for count in point[:-1]), point[-1])


Instrument = Counter | Gauge | Histogram
