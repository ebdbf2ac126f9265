"""Command line interface (click)."""

from fumehood_server.cli.root import main

__all__ = ["main"]
