"""Writes new plugins from the templates beside this file."""

from fumehood_server.cli.scaffold.write import TEMPLATES, Names, names, write

__all__ = ["TEMPLATES", "Names", "names", "write"]
