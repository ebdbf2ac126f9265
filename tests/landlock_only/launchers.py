"""Who starts what has no namespaces."""

from __future__ import annotations

import pytest

LAUNCHERS = (pytest.param("root", marks=pytest.mark.slow("once more, as few launch it")), "ordinary")
"""For `params` and `parametrize`. An ordinary user's come in time: whoever may do less launches it, as a rule."""
