"""Adds to a call's ModuleNotFoundError where packages come from: plugin.lock, the interpreter, the command to run.

Of one that ends the plugin's import the sidecar says so, which knows the plugin's folder.
"""

from __future__ import annotations

import sys

_origin: list[str] = []
"""Where the sidecar has put the packages of the plugin's lock, empty where it has none. No entry: nothing is known."""


def packages_come_from(packages: str) -> None:
    """Say where the sidecar has put the packages of the plugin's lock. Empty: the plugin has none."""
    _origin[:] = [packages]


def explain_missing_module(error: BaseException) -> None:
    """Complete the message of an error about a module of which no part is there. Others stay as they are."""
    if not _origin or not isinstance(error, ModuleNotFoundError) or not isinstance(error.name, str):
        return
    if error.name.partition(".")[0] in sys.modules or "`fumehood plugin lock`" in str(error.msg):
        return
    version = ".".join(map(str, sys.version_info[:3]))
    interpreter = f"{sys.implementation.name} {version} ({getattr(sys.implementation, '_multiarch', sys.platform)})"
    lock = "no package of plugin.lock has it" if _origin[0] else "there is no plugin.lock with packages"
    error.msg = (
        f"{error.msg} ({lock}, for {interpreter}: add its package to `dependencies`, run `fumehood plugin lock`)"
    )
