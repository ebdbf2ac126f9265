"""Console scripts of installed packages, by the entry points of their metadata."""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from pathlib import Path

_REFERENCE = re.compile(r"([A-Za-z_][\w.]*)\s*:\s*([A-Za-z_][\w.]*)", re.ASCII)


def console_scripts(packages: Path) -> Mapping[str, str]:
    """By name, Python code that runs the script. The scripts that installers write name another interpreter."""
    found: dict[str, str] = {}
    for file in sorted(packages.glob("*.dist-info/entry_points.txt")):
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
        try:
            parser.read_string(file.read_text(encoding="utf-8"))
        except (configparser.Error, UnicodeDecodeError):
            continue
        for name, value in parser["console_scripts"].items() if "console_scripts" in parser else ():
            reference = _REFERENCE.match(value)
            if reference is not None:
                module, attribute = reference.groups()
                code = f"import sys; from {module} import {attribute.partition('.')[0]}"
                found[name] = f"{code}; sys.argv[0] = {name!r}; sys.exit({attribute}())"
    return found
