"""What a call took from outside, as the journal keeps it: enough to run it again."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from fumehood_sdk.wire.recorded_values import RecordedValue


@dataclass(frozen=True, slots=True)
class TakenValues:
    """The values of one call, in the order in which they came, and how many were left out."""

    values: tuple[RecordedValue, ...] = ()
    left_out: int = 0

    def __bool__(self) -> bool:
        """Whether the call took anything."""
        return bool(self.values or self.left_out)

    def to_json(self) -> bytes:
        """One object: `left_out`, and `values` as arrays of kind, name, number, value and error."""
        return orjson.dumps({"left_out": self.left_out, "values": self.values}, default=tuple)

    @classmethod
    def from_json(cls, data: bytes) -> TakenValues:
        """Of what `to_json` wrote."""
        fields = orjson.loads(data)
        return cls(tuple(RecordedValue(*each) for each in fields["values"]), fields["left_out"])
