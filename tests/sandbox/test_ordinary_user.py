"""The kernel's facts once more, with an ordinary user as the launcher: other mounts, another identity, no mappings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.users import SANDBOX_AND_PACKAGES, as_ordinary_user, assert_passes, why_not

_TESTS = Path(__file__).resolve().parents[1]
_FILES = {
    "sandbox": ("layers", "process", "seccomp", "file_system", "python_module", "forking"),
    "attacks": ("denials", "neighbours", "next_start"),
}
_LEAST_AND_MOST = ("-k", "not (test_denials and (read or external or executable))")
"""Of the attacks, those at the levels none and write and beside a relay: between them mounts differ, and no user's."""
_WHY_NOT = why_not(_TESTS, *SANDBOX_AND_PACKAGES)


@pytest.mark.promise("S902")
@pytest.mark.skipif(os.geteuid() != 0, reason="this whole suite runs as an ordinary user already")
@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
@pytest.mark.parametrize("area", ["sandbox", pytest.param("attacks", marks=pytest.mark.slow("every attack once more"))])
def test_every_layer_holds_for_an_ordinary_user_too(area: str) -> None:
    assert_passes(
        *(_TESTS / area / f"test_{name}.py" for name in _FILES[area]),
        changed=as_ordinary_user(),
        options=_LEAST_AND_MOST,
    )
