"""A short run of what `make test-kills` does two hundred times."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.recovery.kills import kill_again_and_again


@pytest.mark.slow("the short form of make test-kills")
@pytest.mark.parametrize(("store", "kills"), [("sqlite", 2), ("postgresql", 1)])
def test_kills_at_random_moments_lose_nothing_and_run_nothing_twice(
    store: str, kills: int, request: pytest.FixtureRequest
) -> None:
    url = "" if store == "sqlite" else request.getfixturevalue("postgres_server").new_database()
    said: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        seen = kill_again_and_again(folder, kills, seed=5, say=said.append, url=url, longest_s=1.0, least=20)
    assert len(said) == kills
    assert len(seen.acknowledged) > 10
    assert sum(seen.repeated.values()) > 0
