"""How much work one document may be: little on the event loop, much in the validator process."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


class OverBudgetError(Exception):
    """A document takes more than may be done on the event loop: the validator process has to do it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bounds that are looked at before, or while, the work is done."""

    hands_over: bool
    """Whether what is over the budget is done elsewhere, by `OverBudgetError`. Else it is refused, or left as it is."""
    schema_chars: int
    """A longer schema takes long to compile."""
    subschemas: int
    """Counted by braces, those of other objects included: some 10 µs each, once."""
    counting_steps: int
    """Of finding out what a schema costs (`schema_cost`), once: some 0.5 µs each. Depths beyond cost too much."""
    pattern_states: int
    """Of all patterns of a schema (`PatternCost.building`): what they take to compile."""
    pattern_steps: int
    """States that visit one value, times the text's characters: 40 ns each at worst."""
    chars: int
    values: int
    """Counted by commas and brackets, those within strings included."""
    visits: int
    """Looks of a schema at values, some 25 ns each."""
    multiples: int
    """Looks of `multipleOf` at values, 50 µs each at worst: a thousandth in a number of 300 digits."""
    error_visits: int
    """The same, where every error is collected: each costs some 12 µs, and all are made before one can be read."""
    copied_bytes: int
    """Copies of values in errors, 2 ms for each MiB. Every error holds its value."""
    looks: int
    """Looks of the normaliser's subschemas at values, some 2 µs each."""
    filled_bytes: int
    """Defaults filled in, with their names."""

    def takes_schema(self, schema_json: str) -> bool:
        """Whether a schema, or several in one text, are within the budget by what is seen at once."""
        # As JSON is written here, without spaces: patterns have braces too.
        objects = schema_json.count('{"') + schema_json.count("{}")
        return len(schema_json) <= self.schema_chars and objects <= self.subschemas


INLINE = Budget(
    hands_over=True,
    schema_chars=16 * KIB,
    subschemas=400,
    counting_steps=3_000,
    pattern_states=5_000,
    pattern_steps=200_000,
    chars=64 * KIB,
    values=2_000,
    visits=100_000,
    multiples=200,
    error_visits=600,
    copied_bytes=1 * MIB,
    looks=2_000,
    filled_bytes=64 * KIB,
)
"""At most some 10 ms of the event loop, in the worst shapes that were found."""

PROCESS = Budget(
    hands_over=False,
    schema_chars=MIB,
    subschemas=MIB,
    counting_steps=1_000_000,
    pattern_states=1 << 40,
    pattern_steps=1 << 60,
    chars=16 * MIB,
    values=16 * MIB,
    visits=20_000_000,
    multiples=100_000,
    error_visits=10_000,
    copied_bytes=16 * MIB,
    looks=3_000_000,
    filled_bytes=2 * MIB,
)
"""At most a few seconds. It is reached by schemas that look hundreds of times at each value, not by size alone."""
