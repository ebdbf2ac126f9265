"""Writes wheels and other zip archives of plugins, as builders do and as attackers would."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

CODE = """\
from fumehood_sdk import Plugin

plugin = Plugin("greets", version="{version}")


@plugin.tool(side_effects="none", idempotent=True)
def {tool}(name: str = "you") -> str:
    \"\"\"Greet somebody by the name that is given.\"\"\"
    return "Hello, " + name
"""
MANIFEST = '[plugin]\nname = "greets"\nversion = "{version}"\nkind = "python"\nentrypoint = "code:plugin"\n'


def plugin_files(version: str = "1.0.0", tool: str = "greet_by_name") -> dict[str, str]:
    """The files of a plugin's folder."""
    return {
        "plugin.toml": MANIFEST.format(version=version),
        "code.py": CODE.format(version=version, tool=tool),
    }


def wheel(
    folder: Path,
    files: Mapping[str, str],
    entry_points: str,
    *,
    version: str = "1.0.0",
    requires: Sequence[str] = (),
) -> Path:
    """A wheel named `greets` with these files, metadata and entry points."""
    folder.mkdir(exist_ok=True)
    info = f"greets-{version}.dist-info"
    path = folder / f"greets-{version}-py3-none-any.whl"
    metadata = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: greets\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {each}\n" for each in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points,
        f"{info}/RECORD": "",
    }
    archive(path, {**files, **metadata})
    return path


def packaged(folder: Path, *, version: str = "1.0.0", tool: str = "greet_by_name") -> Path:
    """A wheel whose plugin is a package with a plugin.toml."""
    files = {f"greets_plugin/{name}": text for name, text in plugin_files(version, tool).items()}
    return wheel(folder, files, "[fumehood.plugins]\ngreets = greets_plugin\n", version=version)


def archive(path: Path, files: Mapping[str, str | bytes], *, modes: Mapping[str, int] | None = None) -> Path:
    """A zip archive with these entries, whatever their names; `modes` are st_mode."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (modes or {}).get(name, 0o100644) << 16
            written.writestr(info, content)
    return path
