"""Writes new plugins from the templates beside this file."""

from fumehood_server.cli.scaffold.write import TEMPLATES, Names, template_names, write_template

__all__ = ["TEMPLATES", "Names", "template_names", "write_template"]
