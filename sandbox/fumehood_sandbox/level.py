"""Side-effect levels: what a process may do to what lies outside of it, on one ordered scale."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """Side-effect level of a sandboxed process. Each level can do what those before it can.

    Compare levels with `allows`; the order of the members is the scale.
    """

    NONE = "none"
    """Own code read-only, a private scratch folder, no network: `socket()` is denied."""
    READ = "read"
    """`NONE`, and granted paths can be read."""
    WRITE = "write"
    """`READ`, and granted paths can be written."""
    EXTERNAL = "external"
    """`WRITE`, and granted hosts can be reached through a broker."""

    def allows(self, other: Level) -> bool:
        """Whether a process at this level may do what one at `other` may."""
        return _RANK[other] <= _RANK[self]


_RANK = {level: rank for rank, level in enumerate(Level)}
