"""The one entry point."""

from __future__ import annotations

import subprocess

from tests.repository.test_layout import ROOT

TARGETS = [
    *("help", "setup", "gen", "lint", "type", "test", "test-slow", "test-libraries", "test-kernels"),
    *("test-containers", "test-large", "test-mcp-conformance", "test-model", "clients", "bench", "test-kills", "soak"),
    *("demo", "demo-agent", "check"),
]


def make(*arguments: str) -> str:
    return subprocess.run(["make", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S607


def test_help_names_each_target_with_what_it_does() -> None:
    lines = [line.split(maxsplit=2) for line in make("help").splitlines()]
    assert [line[1] for line in lines] == TARGETS
    assert all(line[0] == "make" and line[2] for line in lines)


def test_without_a_target_make_helps() -> None:
    assert make() == make("help")


def test_continuous_integration_runs_the_same_check() -> None:
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines().count("make check") == 1
