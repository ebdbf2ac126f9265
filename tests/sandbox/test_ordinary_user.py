"""The kernel's facts once more, with an ordinary user as the launcher: other mounts, another identity, no mappings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.users import SANDBOX_AND_PACKAGES, as_ordinary_user, assert_passes, why_not

_TESTS = Path(__file__).resolve().parents[1]
_FILES = (
    *("sandbox/test_layers.py", "sandbox/test_process.py", "sandbox/test_seccomp.py", "sandbox/test_file_system.py"),
    *("sandbox/test_python_module.py", "sandbox/test_forking.py"),
    *("attacks/test_denials.py", "attacks/test_neighbours.py", "attacks/test_next_start.py"),
)
_WHY_NOT = why_not(_TESTS, *SANDBOX_AND_PACKAGES)


@pytest.mark.promise("S902")
@pytest.mark.skipif(os.geteuid() != 0, reason="this whole suite runs as an ordinary user already")
@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
@pytest.mark.parametrize("file", _FILES)
def test_every_layer_holds_for_an_ordinary_user_too(file: str) -> None:
    assert_passes(_TESTS / file, changed=as_ordinary_user())
