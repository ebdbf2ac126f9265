"""What an imported plugin's folder is to hold: its server resolved to exact versions, and its manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement

from fumehood_server.cli.mcp_import.host_configuration import HOST_NAMES, Host
from fumehood_server.cli.mcp_import.launchers import Launch
from fumehood_server.cli.mcp_import.npm_package import NpmPackage, resolve_npm
from fumehood_server.cli.mcp_import.plan import PlannedSecret, ServerPlan
from fumehood_server.cli.mcp_import.plugin_folder import FolderContent, manifest_text, remote_manifest_text
from fumehood_server.cli.mcp_import.private_addresses import private_addresses
from fumehood_server.cli.mcp_import.python_package import PythonPackages, resolve_project, resolve_python
from fumehood_server.cli.mcp_import.remote_plan import RemotePlan
from fumehood_server.cli.output import plural
from fumehood_server.model.text import printable
from fumehood_server.plugins.environments.plugin_lock import PLUGIN_LOCK_NAME

_MAX_DESCRIPTION = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedServer:
    """A server at exact versions."""

    content: FolderContent
    what: str
    """What is installed, for people: empty where nothing is."""
    build_hosts: tuple[str, ...] = ()
    build_private: tuple[str, ...] = ()
    """Addresses of those that are not public, as NAME=ADDRESS."""
    notes: tuple[str, ...] = ()

    def without_secrets(self, secrets: Iterable[PlannedSecret]) -> ResolvedServer:
        """The same without the variables and header fields that hold these secrets."""
        return replace(self, content=self.content.without_secrets([each.name for each in secrets]))


def resolve_server(plan: ServerPlan, host: Host | None, old: Path | None, say: Callable[[str], None]) -> ResolvedServer:
    """Resolve what the server is, and write its manifest's text. `old` is an earlier import, whose versions are kept.

    Raises:
        NotImportableError: it can't be had.
    """
    command = plan.command
    if plan.remote is not None:
        return _of_remote(plan, host, plan.remote)
    if command.launch is Launch.NPM:
        npm = resolve_npm(plan.name, (command.requirement, *command.others), command.script, old, say)
        return _of_npm(plan, host, npm)
    if command.launch is Launch.PYPI:
        found = resolve_python(command.requirement, command.others, old, say)
        return _of_python(plan, host, found, command.requirement)
    packages = resolve_project(plan.code, command.others, old, say) if _runs_python(plan) and plan.code else None
    return _of_program(plan, host, packages)


def _of_remote(plan: ServerPlan, host: Host | None, remote: RemotePlan) -> ResolvedServer:
    name = remote.server.host.rpartition(":")[0].strip("[]")
    private = private_addresses(name)
    text = remote_manifest_text(
        name=plan.name,
        description=_description(plan, host),
        url=remote.server.url,
        headers=remote.headers,
        secrets=((each.field, each.name, each.prefix) for each in remote.secrets),
    )
    notes = (f"{name} is not at a public address; it may reach {', '.join(private)}",) if private else ()
    return ResolvedServer(content=FolderContent(manifest=text), what="", build_private=private, notes=notes)


def _runs_python(plan: ServerPlan) -> bool:
    return plan.command.script.startswith("python")


def _of_program(plan: ServerPlan, host: Host | None, found: PythonPackages | None) -> ResolvedServer:
    command = plan.command
    dependencies = found.dependencies if found else ()
    text = _manifest(plan, host, "1.0.0", (command.script, *command.arguments), dependencies=dependencies)
    files = {PLUGIN_LOCK_NAME: found.lock} if found else {}
    return ResolvedServer(
        content=FolderContent(manifest=text, files=files, program=plan.program, code=plan.code, left_out=plan.left_out),
        what=f"{plural(found.packages, 'package')} that {plan.code} needs, held to hashes" if found else "",
    )


def _of_npm(plan: ServerPlan, host: Host | None, npm: NpmPackage) -> ResolvedServer:
    start = ("node", npm.program, *plan.command.arguments)
    text = _manifest(plan, host, npm.version, start, build=npm.build)
    others = f" and {plural(npm.packages - 1, 'package')} that it needs" if npm.packages > 1 else ""
    notes: tuple[str, ...] = ()
    if npm.build_private:
        notes += (f"npm's registry is not at a public address; its build may reach {', '.join(npm.build_private)}",)
    if npm.scripts:
        notes += (f"installing it runs scripts of {', '.join(npm.scripts[:8])}, in a sandbox",)
    return ResolvedServer(
        content=FolderContent(manifest=text, files=npm.files),
        what=f"{npm.name} {npm.version}{others} from {npm.build_host}",
        build_hosts=(npm.build_host,),
        build_private=npm.build_private,
        notes=notes,
    )


def _of_python(plan: ServerPlan, host: Host | None, found: PythonPackages, requirement: str) -> ResolvedServer:
    start = (plan.command.script, *plan.command.arguments)
    text = _manifest(plan, host, found.version, start, dependencies=found.dependencies)
    others = f" and {plural(found.packages - 1, 'package')} that it needs" if found.packages > 1 else ""
    return ResolvedServer(
        content=FolderContent(manifest=text, files={PLUGIN_LOCK_NAME: found.lock}),
        what=f"{Requirement(requirement).name} {found.version}{others}, held to hashes",
    )


def _manifest(
    plan: ServerPlan,
    host: Host | None,
    version: str,
    command: tuple[str, ...],
    *,
    build: tuple[str, ...] = (),
    dependencies: tuple[str, ...] = (),
) -> str:
    return manifest_text(
        name=plan.name,
        version=version,
        description=_description(plan, host),
        command=command,
        build=build,
        dependencies=dependencies,
        environment=plan.environment,
        secrets={each.variable: each.name for each in plan.secrets},
    )


def _description(plan: ServerPlan, host: Host | None) -> str:
    shown = printable(plan.entry.name)[:_MAX_DESCRIPTION]
    return f'The MCP server "{shown}"' + (f" of {HOST_NAMES[host]}" if host else "")
