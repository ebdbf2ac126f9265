"""Files of libraries' settings that hold credentials: found where the user's home can be looked into."""

from __future__ import annotations

from pathlib import Path

import pytest
from fumehood_server.config.library_settings import credential_paths


def test_home_that_can_not_be_looked_into_has_no_credentials_and_another_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a service with ProtectHome= that is EACCES, which root never meets: a name that is too long fails alike."""
    (tmp_path / ".netrc").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path / ".netrc" in credential_paths()
    monkeypatch.setenv("HOME", str(tmp_path / ("x" * 300)))
    assert not [each for each in credential_paths() if each.is_relative_to(tmp_path)]
