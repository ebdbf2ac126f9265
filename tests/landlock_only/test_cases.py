"""The backend without namespaces, held to its promises by root and by an ordinary user.

Nothing can be mounted there, so the program's user needs rights to the interpreter: the cases are run by the system's.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.users import SANDBOX_AND_PACKAGES, as_ordinary_user, assert_passes, why_not

from .launchers import LAUNCHERS

pytestmark = pytest.mark.promise("S904")

_HERE = Path(__file__).resolve().parent
_WHY_NOT = why_not(_HERE, *SANDBOX_AND_PACKAGES)


@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
@pytest.mark.parametrize("user", LAUNCHERS)
def test_every_promise_holds_without_namespaces(user: str) -> None:
    changed: tuple[str, ...] = ()
    if os.geteuid() == 0 and user == "ordinary":
        changed = as_ordinary_user()
    elif os.geteuid() != 0 and user == "root":
        pytest.skip("this whole suite runs as an ordinary user")
    assert_passes(*sorted(_HERE.glob("cases_*.py")), changed=changed)
