"""Reads a plugin from a wheel (PyPA binary distribution format) by its entry point of the group `fumehood.plugins`.

[fumehood.plugins]
dice = dice_plugin           a package of the wheel: its folder is the plugin's, with a plugin.toml
dice = dice_plugin:plugin    a module and its `Plugin`: the whole wheel is the folder, and the manifest is written
"""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement

from fumehood_server.errors import PluginInvalidError
from fumehood_server.model.text import printable
from fumehood_server.plugins.environments.dependencies import MAX_DEPENDENCIES, MAX_DEPENDENCY_CHARS
from fumehood_server.plugins.environments.sdk_packages import is_of_sdk, unmet
from fumehood_server.plugins.manifest import MANIFEST_NAME
from fumehood_server.plugins.manifest_file import valid_plugin_name
from fumehood_server.plugins.packages.archive import Archive

GROUP = "fumehood.plugins"
_MAX_METADATA_BYTES = 1024 * 1024
_DIST_INFO = re.compile(r"[A-Za-z0-9._]+-[A-Za-z0-9._!+]+\.dist-info")
_OBJECT = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?::(?P<attribute>[A-Za-z_]\w*))?", re.ASCII)
_HINT = f'the wheel needs one entry point in the group "{GROUP}": a package with a plugin.toml, or module:plugin'


@dataclass(frozen=True, slots=True)
class WheelPlugin:
    """Which files of a wheel are the plugin's, and what its metadata says that they may not."""

    place: Callable[[str], str]
    manifest: str
    """Where the wheel holds none. Else empty."""
    dependencies: tuple[str, ...]
    """Its `Requires-Dist`, without those of extras and those that the SDK brings."""


def read_wheel(archive: Archive) -> WheelPlugin:
    """What the wheel's entry point names. Nothing is imported for it.

    Raises:
        PluginInvalidError: the wheel has no plugin, or several.
    """
    tops = {name.split("/", 1)[0] for name in archive.entries}
    infos = sorted(name for name in tops if name.endswith(".dist-info"))
    if len(infos) != 1 or not _DIST_INFO.fullmatch(infos[0]):
        raise PluginInvalidError(archive.path, "is not a wheel: it has not exactly one .dist-info folder")
    name, value = _entry_point(archive, f"{infos[0]}/entry_points.txt")
    found = _OBJECT.fullmatch(value)
    if found is None:
        raise PluginInvalidError(archive.path, f'its entry point "{printable(value[:200])}" is no object', hint=_HINT)
    outside = {top for top in tops if top.endswith((".dist-info", ".data"))}
    headers = HeaderParser().parsestr(archive.text(f"{infos[0]}/METADATA", _MAX_METADATA_BYTES))
    dependencies = tuple(_dependencies(archive.path, headers))
    if found["attribute"] is None:
        folder = found["module"].replace(".", "/") + "/"
        if f"{folder}{MANIFEST_NAME}" not in archive.entries:
            raise PluginInvalidError(archive.path, f'has no "{folder}{MANIFEST_NAME}"', hint=_HINT)
        return WheelPlugin(lambda path: path.removeprefix(folder) if path.startswith(folder) else "", "", dependencies)
    if not valid_plugin_name(name):
        raise PluginInvalidError(archive.path, f'"{printable(name[:200])}" is not a plugin\'s name', hint=_HINT)
    if MANIFEST_NAME in archive.entries:
        raise PluginInvalidError(archive.path, f"has a {MANIFEST_NAME} beside its packages", hint=_HINT)
    version = str(headers["Version"] or "")
    manifest = (
        f"[plugin]\nname = {json.dumps(name)}\nversion = {json.dumps(version)}\n"
        f'kind = "python"\nentrypoint = {json.dumps(value)}\n'
    )
    return WheelPlugin(lambda path: "" if path.split("/", 1)[0] in outside else path, manifest, dependencies)


def _dependencies(path: Path, headers: Message) -> Iterator[str]:
    """What the wheel requires of others wherever it is installed (Core metadata specifications, Requires-Dist).

    Raises:
        PluginInvalidError: one is malformed, or there are too many; or the SDK here is not what it requires.
    """
    texts = [str(each) for each in headers.get_all("Requires-Dist", ())]
    if len(texts) > MAX_DEPENDENCIES:
        raise PluginInvalidError(path, f"requires more than {MAX_DEPENDENCIES} distributions")
    for text in texts:
        try:
            requirement = Requirement(text[:MAX_DEPENDENCY_CHARS])
            if requirement.marker is not None and "extra" in str(requirement.marker):
                if not requirement.marker.evaluate({"extra": ""}):
                    continue
                requirement.marker = None
        except (InvalidRequirement, UndefinedEnvironmentName, RecursionError) as exc:
            problem = f'its metadata has "Requires-Dist: {printable(text[:64])}", which is no requirement'
            raise PluginInvalidError(path, problem) from exc
        if not is_of_sdk(requirement.name):
            yield str(requirement)
        elif problems := unmet([str(requirement)]):
            raise PluginInvalidError(path, f"needs {problems[0]}", hint="ask for a version that fits this sidecar")


def _entry_point(archive: Archive, path: str) -> tuple[str, str]:
    if path not in archive.entries:
        raise PluginInvalidError(archive.path, "holds no plugin", hint=_HINT)
    parser = configparser.RawConfigParser(delimiters=("=",), strict=True, default_section="", interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names are case-sensitive
    try:
        parser.read_string(archive.text(path, _MAX_METADATA_BYTES))
    except configparser.Error as exc:
        raise PluginInvalidError(archive.path, f'its "{path}" can\'t be read') from exc
    found = parser.items(GROUP) if parser.has_section(GROUP) else []
    if len(found) != 1:
        problem = "holds no plugin" if not found else f"holds {len(found)} plugins"
        raise PluginInvalidError(archive.path, problem, hint=_HINT)
    return found[0][0].strip(), found[0][1].strip()
