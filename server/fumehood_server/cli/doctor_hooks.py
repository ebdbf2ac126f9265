"""What `fumehood doctor` says of hooks and middleware: whether they can be loaded, are served, and concern any call."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from fumehood_server.cli.client import SidecarClient
from fumehood_server.cli.doctor_callers import CallerFinding
from fumehood_server.config import SidecarConfig
from fumehood_server.errors import ConfigError
from fumehood_server.hooks.loading import load_middleware
from fumehood_server.model.hooks import HookConfig, HookKind, MiddlewareConfig, WhenGone


def hook_findings(config: SidecarConfig, plugins: Collection[str]) -> Iterator[CallerFinding]:
    """Of the configuration's. Middleware is imported, as the sidecar does. `plugins` are the names of its plugins."""
    for middleware in config.middleware:
        feature = f"middleware {middleware.name}"
        try:
            load_middleware([middleware], config.path or Path("fumehood.toml"))
        except ConfigError as error:
            yield CallerFinding(feature, "missing", error.problem, error.hint)
        else:
            yield CallerFinding(feature, "ok", "can be loaded")
        yield from _idle(feature, middleware, config, plugins)
    for hook in config.hooks:
        feature = f"hook {hook.name}"
        by = ", ".join(hook.served_by) or "an operator"
        detail = f"asked {' and '.join(hook.stages)} a call, served by {by}"
        if hook.when_gone is WhenGone.ALLOW:
            yield CallerFinding(feature, "note", f"{detail}; calls go on without it while it is gone", _CLOSED)
        else:
            yield CallerFinding(feature, "ok", f"{detail}; calls are refused while it is gone")
        yield from _idle(feature, hook, config, plugins)


_CLOSED = 'leave out `when_gone = "allow"` to have them refused'


def _idle(
    feature: str, config: HookConfig | MiddlewareConfig, whole: SidecarConfig, plugins: Collection[str]
) -> Iterator[CallerFinding]:
    for what, named, known in (
        ("[[caller]]", {*config.matchers.callers} - {""}, {each.name for each in whole.callers}),
        ("[[plugin]]", {*config.matchers.plugins}, {*plugins}),
    ):
        missing = sorted(named - known)
        if missing:
            detail = f"names {', '.join(missing)}, and no {what} is that"
            yield CallerFinding(feature, "note", detail, "mend the name, or leave it out")


def served_findings(client: SidecarClient) -> Iterator[CallerFinding]:
    """Of the hooks of the sidecar that runs: those that nobody serves.

    Raises:
        CommandError: the sidecar gives no answer.
    """
    for each in client.list_hooks():
        if each.kind == HookKind.HOOK.value and not each.connections:
            gone = "goes on" if each.when_gone == WhenGone.ALLOW.value else "is refused"
            detail = f"nobody serves it: each call that it would be asked about {gone}"
            yield CallerFinding(f"hook {each.name}", "note", detail, "start the program that serves it: docs/hooks.md")
