"""Dependency specifiers (PEP 508) that a plugin declares, in plugin.toml or in a pyproject.toml beside it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from fumehood_server.config.toml_source import read_toml
from fumehood_server.errors import PluginInvalidError
from fumehood_server.model.text import printable
from fumehood_server.plugins.environments.sdk_packages import is_of_sdk, unmet

MAX_DEPENDENCIES = 256
MAX_DEPENDENCY_CHARS = 512
"""The parser recurses into a marker's brackets."""

PYPROJECT_NAME = "pyproject.toml"


class DependencyError(ValueError):
    """A specifier that can't be taken."""

    def __init__(self, problem: str, hint: str) -> None:
        """Keep the problem and the remedy."""
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


def canonical_dependencies(texts: Iterable[str]) -> tuple[str, ...]:
    """The specifiers in one spelling, sorted, each once.

    Raises:
        DependencyError: one of them is malformed, names an address, or contradicts a version of the SDK's.
    """
    return tuple(sorted({_canonical(text) for text in texts}))


def _canonical(text: str) -> str:
    shown = printable(text[:64])
    if len(text) > MAX_DEPENDENCY_CHARS or "$" in text:  # both installers put environment variables in place of ${NAME}
        raise DependencyError(f'"{shown}" is not a dependency', 'for example "httpx>=0.28"')
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError) as exc:
        raise DependencyError(f'"{shown}" is not a dependency', 'for example "httpx>=0.28"') from exc
    if requirement.url is not None:
        raise DependencyError(
            f'"{shown}" names an address', "a lock names packages and hashes alone: publish a wheel, or copy the code"
        )
    if is_of_sdk(requirement.name) and (problems := unmet([str(requirement)])):
        raise DependencyError(
            f"the plugin needs {problems[0]}", "the SDK brings it: ask for a version that includes it"
        )
    return str(requirement)


def pyproject_dependencies(folder: Path) -> tuple[str, ...]:
    """`[project] dependencies` of the folder's pyproject.toml. Empty where there are none, or a build computes them.

    Raises:
        PluginInvalidError: the file can't be read, or one of them can't be taken.
    """
    path = folder / PYPROJECT_NAME
    if not path.is_file():
        return ()
    source = read_toml(path, PluginInvalidError)
    project = source.data.get("project")
    declared = project.get("dependencies", []) if isinstance(project, dict) else []
    if not (isinstance(declared, list) and all(isinstance(each, str) for each in declared)):
        raise source.problem(("project", "dependencies"), "`dependencies` in [project] must be an array of strings")
    if len(declared) > MAX_DEPENDENCIES:
        raise source.problem(("project", "dependencies"), f"there are more than {MAX_DEPENDENCIES} dependencies")
    for index, text in enumerate(declared):
        try:
            _canonical(text)
        except DependencyError as exc:
            raise source.problem(("project", "dependencies", index), exc.problem, exc.hint) from exc
    return canonical_dependencies(declared)
