"""Builders of plugin folders and configurations, and a plugin's `Ready` with fault knobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fumehood.v1 import tool_pb2
from fumehood_server.config.load import load_config
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.model.tool import Reason
from fumehood_server.plugins.catalog import Catalog
from fumehood_server.plugins.check import propose_pin
from fumehood_server.plugins.manifest import Manifest, try_manifest

ONE = '[[plugin]]\npath = "one"\n'
TWO = '[[plugin]]\npath = "two"\n'

SCHEMA = '{"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": false}'

REQUIRED = SCHEMA.replace('"additional', '"required": ["text"], "additional')


def manifest_of(folder: Path) -> Manifest:
    """The valid manifest in `folder`."""
    reading = try_manifest(folder)
    assert reading.manifest is not None, reading.problems
    return reading.manifest


async def accept(folder: Path) -> None:
    """Pin what is in a plugin's folder, in the lock beside it, as `fumehood plugin add` does."""
    proposal = await propose_pin(folder, folder.parent / "fumehood.lock", describe=FakeDescribe())
    await proposal.accept()


def tool_toml(name: str, *, side_effects: str = "none", extra: str = "", schema: str = SCHEMA) -> str:
    return f"""
[[tool]]
name = "{name}"
description = "Does what its name says, for tests."
side_effects = "{side_effects}"
input_schema = '{schema}'
{extra}
"""


def executable(folder: Path, *tools: str, name: str = "", version: str = "1.0.0") -> Path:
    """A plugin of kind `executable` whose program lies in its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "run"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    text = (
        f'[plugin]\nname = "{name or folder.name}"\nversion = "{version}"\nkind = "executable"\ncommand = ["./run"]\n'
    )
    (folder / "plugin.toml").write_text(text + "".join(tools or (tool_toml("echo"),)))
    return folder


def cli(folder: Path, *tools: str, binary: str = "grep") -> Path:
    """A plugin of kind `cli`."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f'[plugin]\nname = "{folder.name}"\nversion = "1.0.0"\nkind = "cli"\nbinary = "{binary}"\n'
    body = tools or (tool_toml("search", extra='argv = ["-e", "{text}"]', schema=REQUIRED),)
    (folder / "plugin.toml").write_text(text + "".join(body))
    return folder


def python(folder: Path, *, name: str = "") -> Path:
    """A plugin of kind `python`. Its code is never run here: the definitions come from a `FakeDescribe`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "code.py").write_text("plugin = object()\n")
    text = f'[plugin]\nname = "{name or folder.name}"\nversion = "1.0.0"\nkind = "python"\nentrypoint = "code:plugin"\n'
    (folder / "plugin.toml").write_text(text)
    return folder


def declared(name: str, side_effects: str = "NONE", **fields: object) -> tool_pb2.ToolDefinition:
    """A definition as a plugin sends it."""
    return tool_pb2.ToolDefinition(
        name=name,
        description="Does what its name says, for tests.",
        input_schema_json=SCHEMA,
        side_effects=tool_pb2.SideEffects.Value(f"SIDE_EFFECTS_{side_effects}"),
        **fields,
    )


@dataclass
class Answer:
    tools: Sequence[tool_pb2.ToolDefinition]
    version: str = ""
    fork_problem: str = ""


@dataclass
class FakeDescribe:
    """Plays a plugin that is asked for its definitions. `error` is raised instead of an answer."""

    tools: Sequence[tool_pb2.ToolDefinition] = ()
    error: Exception | None = None
    version: str = ""
    fork_problem: str = ""
    asked: list[WorkerSpec] = field(default_factory=list)

    async def __call__(self, spec: WorkerSpec) -> Answer:
        self.asked.append(spec)
        if self.error is not None:
            raise self.error
        return Answer(self.tools, self.version, self.fork_problem)


@dataclass
class LogLines:
    """Keeps what is logged."""

    lines: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def info(self, event: str, /, **fields: object) -> None:
        self.lines.append((event, fields))

    def warning(self, event: str, /, **fields: object) -> None:
        self.lines.append((event, fields))


def configure(folder: Path, text: str) -> Path:
    path = folder / "fumehood.toml"
    path.write_text(text)
    return path


async def catalog_of(
    folder: Path,
    text: str,
    *,
    describe: FakeDescribe | None = None,
    locked: bool = False,
    sandbox: Reason | None = None,
) -> Catalog:
    """The catalog of a configuration with this text."""
    config = load_config(configure(folder, text))
    return await Catalog.load(
        config, describe=describe or FakeDescribe(), locked=locked, log=LogLines(), sandbox=sandbox
    )


def codes(catalog: Catalog, plugin: str) -> list[str]:
    """Why a plugin does not serve."""
    found = catalog.plugin(plugin)
    assert found is not None
    return [reason.code for reason in found.reasons]
