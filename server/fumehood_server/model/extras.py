"""Extras of the distribution: what adds one to the installation that is there."""

from __future__ import annotations


def install_command(extra: str) -> str:
    """What to run, in words that hold for an installation from a clone and for one from an index."""
    return f'pip install "./server[{extra}]" in a clone, or "fumehood-server[{extra}]" from an index'
