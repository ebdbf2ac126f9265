"""Availability checks: whether tools could run now, by one scan of the machine for each listing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from fumehood_sandbox import Executable, Level, Policy

from fumehood_server.model.capability import CapabilityKind, parse_capability
from fumehood_server.model.plugin import Kind, RegisteredTool
from fumehood_server.model.tool import AVAILABLE, Availability, Reason
from fumehood_server.plugins.environments.environments import Environments
from fumehood_server.plugins.loading import LoadedPlugin
from fumehood_server.plugins.manifest import MANIFEST_NAME
from fumehood_server.plugins.registration import Registration
from fumehood_server.secrets import SecretSource, SecretUnavailableError

_Need = tuple[Level, tuple[str, ...]]


class AvailabilityScan:
    """The checks of one listing, each made once and cached. Make a new scan for each listing.

    A plugin's tools share them: a thousand tools cost a few system calls for each plugin.
    """

    def __init__(
        self,
        sandbox: Reason | None = None,
        secrets: Mapping[str, SecretSource] | None = None,
        environments: Environments | None = None,
    ) -> None:
        """`sandbox` says why this machine can't sandbox at all; None when it can."""
        self._sandbox = sandbox
        self._environments = environments
        self._secrets = secrets or {}
        self._of_secret: dict[str, Reason | None] = {}
        self._plugins: dict[int, tuple[Reason, ...]] = {}
        self._needs: dict[int, dict[_Need, Availability]] = {}
        self._programs: dict[tuple[str, str], tuple[str, ...]] = {}
        self._exists: dict[str, bool] = {}

    def check_tool(self, tool: RegisteredTool, registration: Registration) -> Availability:
        """Whether `tool`, which is one of the registration's, could run now."""
        if tool.reasons:
            return Availability(tool.reasons)
        if tool.spec is None:
            return Availability((Reason("plugin_refused", f"{tool.plugin} is not taken"),))
        needs = self._needs.setdefault(id(registration), {})
        definition = tool.definition
        need = (definition.side_effects, definition.requires)
        found = needs.get(need)
        if found is None:
            reasons = (
                *self._of_plugin(registration),
                *self._of_grants(tool.spec.policy),
                *self._of_binaries(definition.requires, tool.spec.policy, registration),
                *self._of_secrets(tool.spec.secrets),
            )
            found = needs[need] = Availability(reasons) if reasons else AVAILABLE
        return found

    def _of_plugin(self, registration: Registration) -> tuple[Reason, ...]:
        found = self._plugins.get(id(registration))
        if found is None:
            found = self._plugins[id(registration)] = tuple(self._check_plugin(registration))
        return found

    def _check_plugin(self, registration: Registration) -> list[Reason]:
        reasons = [self._sandbox] if self._sandbox else []
        loaded = registration.loaded
        if loaded is None:
            return reasons
        name, files = loaded.manifest.name, str(loaded.files)
        if registration.damage is not None:
            return [*reasons, registration.damage]
        if not self._is_there(f"{files}/{MANIFEST_NAME}"):
            return [*reasons, damaged_copy(loaded, f"{files} is gone")]
        if self._environments and loaded.environment and (problem := self._environments.problem(loaded.environment)):
            reasons.append(problem)
        for program in _program_paths(registration):
            # Its own program was verified with its copy.
            if program.startswith(files + "/") or self._executable(program):
                continue
            message = f"{program}, which {name} runs, is not there or may not be executed"
            reasons.append(Reason("binary_missing", message, "install it"))
        return reasons

    def _of_grants(self, policy: Policy) -> list[Reason]:
        return [
            Reason("grant_path_missing", f'the granted path "{path}" is not there', "create it, or correct the grant")
            for path in (*policy.read, *policy.write)
            if not self._is_there(path)
        ]

    def _of_binaries(self, requires: tuple[str, ...], policy: Policy, registration: Registration) -> list[Reason]:
        own = _found_binaries(registration)
        reasons: list[Reason] = []
        for text in requires:
            needed = parse_capability(text)
            # A cli plugin's own programs may lie off the sandbox's PATH: they are started by the paths that were found.
            if needed.kind is not CapabilityKind.BINARY or needed.name in own:
                continue
            if not self._is_on_path(needed.name, policy):
                message = f'the program "{needed.name}" is not on the sandbox\'s PATH'
                reasons.append(
                    Reason("binary_missing", message, "install it where the sandbox sees it, such as /usr/bin")
                )
        return reasons

    def _of_secrets(self, names: tuple[str, ...]) -> list[Reason]:
        for name in names:
            if name not in self._of_secret:
                self._of_secret[name] = _secret_problem(self._secrets[name])
        return [reason for name in names if (reason := self._of_secret[name]) is not None]

    def _is_on_path(self, name: str, policy: Policy) -> bool:
        """Whether `name` runs in the sandbox: an executable on its PATH whose real file is mounted as well."""
        search_path = next((value for key, value in policy.environment if key == "PATH"), "")
        places = self._programs.get((name, search_path))
        if places is None:
            found = shutil.which(name, path=search_path)
            places = self._programs[name, search_path] = (found, os.path.realpath(found)) if found else ()
        # /bin is a link to /usr/bin on most systems, and both are mounted at their own places.
        mounted = tuple(mount.target for mount in policy.runtime)
        beneath = tuple(target + "/" for target in mounted)
        return bool(places) and all(place in mounted or place.startswith(beneath) for place in places)

    def _is_there(self, path: str) -> bool:
        found = self._exists.get(path)
        if found is None:
            found = self._exists[path] = os.access(path, os.F_OK)
        return found

    def _executable(self, path: str) -> bool:
        found = self._exists.get("x" + path)
        if found is None:
            found = self._exists["x" + path] = os.access(path, os.X_OK)
        return found


def damaged_copy(loaded: LoadedPlugin, problem: str) -> Reason:
    """Why a plugin isn't run whose copy, or for `plugin dev` whose folder, is not what was read."""
    plugin = loaded.manifest.name
    if loaded.files == loaded.manifest.folder.resolve():
        message = f"{plugin} changed since it was read: {problem}"
        return Reason("copy_damaged", message, "mend what plugin dev says of it: the next change is read at once")
    message = f"the copy that {plugin} is run from was changed: {problem}"
    return Reason("copy_damaged", message, f"look who may write to state_dir, and: fumehood plugin reload {plugin}")


def _secret_problem(secret: SecretSource) -> Reason | None:
    """Why a secret can't be read now. None when it can."""
    try:
        secret.check_source()
    except SecretUnavailableError as exc:
        if exc.code == "secret_missing":
            return Reason("secret_missing", exc.problem, exc.remedy)
        return Reason("secret_unusable", exc.problem, exc.remedy)
    return None


def _program_paths(registration: Registration) -> tuple[str, ...]:
    """The programs of this machine that the plugin's worker runs; none for a python plugin."""
    if registration.loaded is None or registration.built is None:
        return ()
    program = registration.built.program
    if isinstance(program, Executable):
        return program.argv[:1] if program.argv[0].startswith("/") else ()
    if registration.loaded.manifest.kind is not Kind.CLI:
        return ()
    first, *others = program.argv[1:]
    return (*([first] if first else ()), *(argument.partition("=")[2] for argument in others))


def _found_binaries(registration: Registration) -> tuple[str, ...]:
    """The names of a cli plugin's programs that were found when it was loaded."""
    if registration.loaded is None or registration.built is None or registration.loaded.manifest.kind is not Kind.CLI:
        return ()
    first, *others = registration.built.program.argv[1:]
    named = tuple(argument.partition("=")[0] for argument in others)
    return (registration.loaded.manifest.binary, *named) if first else named
