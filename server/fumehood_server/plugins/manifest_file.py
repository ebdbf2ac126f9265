"""Schema of plugin.toml: tables, keys and types, as pydantic models. `manifest.py` converts them."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from pydantic import Field

from fumehood_server.config.tables import Table, check_with, one_of, refused
from fumehood_server.model.plugin import Kind
from fumehood_server.plugins.environments.dependencies import MAX_DEPENDENCIES

PROTOCOL_VERSIONS = (1,)
"""Versions of the plugin protocol that this sidecar speaks."""

VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Names of variables of a program's environment."""

_PLUGIN_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def valid_plugin_name(name: object) -> bool:
    """Whether a plugin can have this name."""
    return isinstance(name, str) and _PLUGIN_NAME.fullmatch(name) is not None


def _name(value: object) -> object:
    if not valid_plugin_name(value):
        raise refused(f'"{value}" is not a plugin\'s name', "1 to 64 of a-z, 0-9, _ and -, starting with a letter")
    return value


def _version(value: object) -> object:
    if not (isinstance(value, str) and value.strip() and value.isprintable() and len(value) <= 64):  # noqa: PLR2004 - said
        raise refused("a version is one line of 1 to 64 characters", 'for example "1.0.0"')
    return value


def _protocol(value: object) -> object:
    if value not in PROTOCOL_VERSIONS or isinstance(value, bool):
        spoken = ", ".join(str(each) for each in PROTOCOL_VERSIONS)
        raise refused(f"protocol version {value} is not spoken here", f"this sidecar speaks {spoken}")
    return value


def _schema_text(value: object) -> str:
    """A schema is JSON text or a table; a table becomes the text."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise refused("a schema is JSON text or a table")
    try:
        return json.dumps(value)
    except TypeError:
        raise refused("a schema holds no date or time", "write it as a string") from None


class SecretValue(Table):
    """A value of `[plugin.environment]` that is a secret's: `{ secret = "NAME" }`."""

    secret: str = Field(min_length=1, max_length=64)


class SecretHeader(Table):
    """A value of `[plugin.headers]` that holds a secret's: `{ secret = "NAME", prefix = "Bearer " }`."""

    secret: str = Field(min_length=1, max_length=64)
    prefix: str = Field(default="", max_length=64)


class LimitsTable(Table):
    """`[tool.limits]`, and `[plugin.limits]` of kind `mcp`."""

    memory_bytes: int | None = None
    cpu_s: int | None = None
    processes: int | None = None
    open_files: int | None = None
    file_size_bytes: int | None = None
    scratch_bytes: int | None = None
    output_bytes: int | None = None
    log_bytes_per_second: int | None = None
    cpus: int | None = None
    scratch_files: int | None = None


class PluginTable(Table):
    """`[plugin]`."""

    name: Annotated[str, check_with(_name)]
    version: Annotated[str, check_with(_version)]
    kind: Annotated[Kind, one_of(Kind, "kind")]
    protocol: Annotated[int, check_with(_protocol)] = 1
    description: str = Field(default="", max_length=1024)
    entrypoint: str | None = None
    command: list[str] | None = Field(default=None, max_length=64)
    url: str | None = Field(default=None, min_length=1, max_length=8192)
    headers: dict[str, str | SecretHeader] | None = Field(default=None, max_length=64)
    authorities: str | None = Field(default=None, min_length=1, max_length=1024)
    binary: str | None = None
    concurrency: int = Field(default=32, ge=1, le=1024)
    dependencies: list[str] | None = Field(default=None, max_length=MAX_DEPENDENCIES)
    build: list[str] | None = Field(default=None, min_length=1, max_length=64)
    threads: int | None = Field(default=None, ge=1, le=1024)
    environment: dict[str, str | SecretValue] | None = Field(default=None, max_length=64)
    isolation: str = ""
    timeout_s: float | None = None
    limits: LimitsTable | None = None


class ToolTable(Table):
    """`[[tool]]`. Enum words and bounds are checked by `check_definition`, as for definitions of other origin."""

    name: str
    title: str = ""
    description: str = ""
    side_effects: str = ""
    idempotent: bool = False
    requires: list[str] = Field(default=[])
    timeout_s: float | None = None
    idle_timeout_s: float | None = None
    prepares_arguments: bool = False
    isolation: str = ""
    execution_mode: str = ""
    argv: list[Any] | None = Field(default=None, max_length=256)
    binary: str | None = None
    stdin: str | None = None
    environment: dict[str, str] | None = Field(default=None, max_length=64)
    working_folder: str | None = None
    output: str | None = None
    success_exit_codes: list[Annotated[int, Field(ge=0, le=255)]] | None = Field(default=None, min_length=1)
    input_schema: Annotated[str, check_with(_schema_text)] = ""
    output_schema: Annotated[str, check_with(_schema_text)] = ""
    limits: LimitsTable = LimitsTable()


class ManifestFile(Table):
    """The whole file."""

    plugin: PluginTable
    tool: list[ToolTable] = Field(default=[], max_length=1024)
