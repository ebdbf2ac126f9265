"""The backends that a sandbox can be made by, strongest first."""

from __future__ import annotations

from enum import StrEnum


class Backend(StrEnum):
    """How a sandbox is made. As `Policy.minimum` it is the weakest that the operator accepts."""

    NAMESPACES = "namespaces"
    """Bubblewrap's namespaces, with the filter, Landlock and the limits within them."""
    LANDLOCK = "landlock"
    """No namespaces: Landlock, a stricter filter and the limits alone, for containers that forbid user namespaces.

    Never chosen unless the policy's minimum allows it and namespaces can't be had.
    """
