"""Shell completion of tool and plugin names, listed by the running sidecar. Empty when there is none."""

from __future__ import annotations

import click

CONNECT_TIMEOUT_S = 1.0
"""Short, since it is waited for at each press of Tab."""


def tool_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Tools that can be called now."""
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.failure import CommandError

    try:
        with SidecarClient(ctx.params.get("address"), connect_timeout_s=CONNECT_TIMEOUT_S) as client:
            names = [tool.definition.name for tool in client.list_tools()]
    except CommandError:
        return []
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


def plugin_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's
    """Plugins that the sidecar knows, refused ones included."""
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.failure import CommandError

    try:
        with SidecarClient(ctx.params.get("address"), connect_timeout_s=CONNECT_TIMEOUT_S) as client:
            names = [plugin.name for plugin in client.list_plugins()]
    except CommandError:
        return []
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]
