"""The remedy for namespaces names the profile of AppArmor that confines the sidecar, where one does."""

from __future__ import annotations

from pathlib import Path

import pytest
from fumehood_sandbox.outside import bubblewrap

PROBLEM = "bwrap: No permissions to create new namespace"


@pytest.mark.parametrize(
    ("label", "profile"),
    [
        ("no-userns (enforce)\n", "no-userns"),
        ("/usr/bin/my sidecar (kill)\n", "/usr/bin/my sidecar"),
        ("no-userns (complain)\n", ""),
        ("bwrap (unconfined)\n", ""),
        ("unconfined\n", ""),
        ("", ""),
    ],
)
def test_remedy_names_the_profile_that_denies(
    label: str, profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "current").write_text(label)
    monkeypatch.setattr(bubblewrap, "_OWN_LABEL", tmp_path / "current")
    remedy = bubblewrap.remedy_for(PROBLEM)
    assert ("AppArmor confines this process and must have `userns`" in remedy) is bool(profile)
    assert f"the profile {profile} of AppArmor" in remedy or not profile
    assert "kernel.unprivileged_userns_clone=1" in remedy


def test_kernel_without_apparmor_confines_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "_OWN_LABEL", tmp_path / "none")
    assert bubblewrap.remedy_for(PROBLEM).startswith("allow user namespaces: ")
