"""`fumehood plugin build`: makes what plugins run with, packages of their locks and builds of their own."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood_server.cli.failure import CommandError, ExitStatus


@click.command(short_help="Make what plugins run with: packages, and builds of their own.")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path), metavar="[FOLDER]...")
@click.option("--with", "installer", type=click.Choice(["uv", "pip"]), help="[default: uv where it can be had]")
@click.option("--host", "hosts", multiple=True, metavar="NAME:PORT", help="Grant a host to the build commands; again.")
@click.option("--config", "config_path", type=click.Path(path_type=Path), metavar="FILE", help="As for serve.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def build(
    folders: tuple[Path, ...], installer: str | None, hosts: tuple[str, ...], config_path: Path | None, as_json: bool
) -> int:
    """Make what the plugin in each FOLDER runs with, or every plugin of the configuration.

    For a python plugin it installs what plugin.lock names: each package is held to its hash, and no code of it runs.
    For one with a build command it runs that in a sandbox, on a copy of the folder, with the hosts of `build_hosts` and
    --host alone. Whatever is downloaded is downloaded here and never while the sidecar serves.

    The results lie in the sidecar's state_dir; without a fumehood.toml they lie in ~/.local/state/fumehood. What is
    there and intact is left as it is.

    \b
    Examples:
      fumehood plugin build                        all plugins of fumehood.toml, before a start
      fumehood plugin build plugins/dice && fumehood plugin reload dice
      fumehood plugin build plugins/regex --host registry.npmjs.org:443
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.plugin_builds import build_for
    from fumehood_server.config import find_config, load_config
    from fumehood_server.plugins.manifest import read_manifest

    config = load_config(find_config(config_path))
    named = folders or tuple(plugin.path for plugin in config.plugins)
    if not named:
        raise CommandError("no plugin is named", "Name a plugin's folder, or a configuration with --config.")
    made = []
    for folder in named:
        done = build_for(read_manifest(folder), config, installer=installer or "", hosts=hosts, quiet=as_json)
        made.append(done)
        if not as_json:
            state = "needs nothing" if done.path is None else "built" if done.built else "was built already"
            output.say(f"{done.plugin}: {state}")
    if as_json:
        output.print_json({"plugins": [each.to_json() for each in made]})
    return ExitStatus.OK
