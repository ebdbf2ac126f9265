"""What was mended of a call's arguments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Coercion:
    """One argument that was taken as something of another type than the caller sent."""

    pointer: str
    """Its place, as a JSON pointer (RFC 6901). Empty: the arguments as a whole."""
    rule: str
    """What it became: `number`, `boolean`, `null`, `array` or `object`."""
    message: str
