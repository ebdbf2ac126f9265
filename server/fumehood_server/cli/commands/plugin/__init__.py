"""`fumehood plugin`: the group of commands about plugins."""

from __future__ import annotations

import click

from fumehood_server.cli.lazy_group import LazyGroup

_HERE = "fumehood_server.cli.commands.plugin"


@click.group(
    cls=LazyGroup,
    places={
        "new": (f"{_HERE}.new:new", "Write a new plugin, ready to run."),
        "check": (f"{_HERE}.check:check", "Say what is wrong with a plugin, and what it asks for."),
        "dev": (f"{_HERE}.dev:dev", "Serve one plugin while you work on it; reloads on save."),
        "lock": (f"{_HERE}.lock:lock", "Choose and pin the packages that a plugin needs."),
        "build": (f"{_HERE}.build:build", "Make what plugins run with: packages, and builds of their own."),
        "add": (f"{_HERE}.add:add", "Look at what a plugin asks for, and pin it."),
        "upgrade": (f"{_HERE}.upgrade:upgrade", "Look at what another version changes, and pin it."),
        "remove": (f"{_HERE}.remove:remove", "Take a plugin out of fumehood.toml and fumehood.lock."),
        "pack": (f"{_HERE}.pack:pack", "Write a plugin into one file, for `plugin add` elsewhere."),
        "list": (f"{_HERE}.list:list_plugins", "List the sidecar's plugins."),
        "show": (f"{_HERE}.show:show", "Show one plugin with its tools, workers and sandboxes."),
        "logs": (f"{_HERE}.logs:logs", "Show what a plugin wrote."),
        "disable": (f"{_HERE}.disable:disable", "Take a plugin out of service, at once."),
        "enable": (f"{_HERE}.enable:enable", "Put a plugin back into service."),
        "reload": (f"{_HERE}.reload:reload", "Have the sidecar read a plugin's folder again."),
    },
    short_help="Write, check, pin and watch plugins.",
    epilog="From list on, commands ask the sidecar that runs; dev starts its own; the others need none.",
)
def plugin() -> None:
    """Write, check, pin and watch plugins.

    \b
    From nothing to a tool that can be called:
      fumehood plugin new dice        a folder with a tool, a test and a README
      fumehood plugin dev dice        serve it, and reload it on save
      fumehood plugin lock dice       choose and pin the packages that it needs, if any
      fumehood plugin check dice      what is wrong with it, and what it asks for
      fumehood plugin add dice        pin it, and name it in fumehood.toml
    """
