"""fumehood.lock: the pinned digest and definitions of each plugin that the operator accepted."""

from __future__ import annotations

import functools
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import Field, ValidationError

from fumehood_server.config.operator_files import changing, unwritable
from fumehood_server.config.tables import Table
from fumehood_server.errors import ConfigError
from fumehood_server.model.json_keys import first_duplicate
from fumehood_server.model.text import printable
from fumehood_server.model.tool import ToolDefinition
from fumehood_server.plugins.definitions import RawDefinition, definition_digest, definition_json, pinned_definition
from fumehood_server.plugins.manifest_file import LimitsTable

LOCK_VERSION = 1
LOCK_LIMIT_BYTES = 64 * 1024 * 1024
"""Room for 1,000 tools with schemas of 30 KiB."""

_REMEDY = (
    "restore the file from version control, or remove it and pin each plugin again with `fumehood plugin add PATH`"
)
_SURROGATE = re.compile(rb"\\u[dD]")


@dataclass(frozen=True, slots=True)
class Origin:
    """The archive that a plugin was unpacked from."""

    file: str
    """Its name."""
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """One plugin as it was accepted."""

    version: str
    digest: str
    """Of its folder."""
    tools: tuple[ToolDefinition, ...]
    """Sorted by name."""
    origin: Origin | None = None
    """None for a folder."""
    is_usable: bool = field(default=True, compare=False)
    """Whether every schema of theirs is taken: another release may have had other bounds."""

    def same_plugin(self, other: Pinned) -> bool:
        """Whether both are the same files and definitions, wherever they came from."""
        return replace(self, origin=None) == replace(other, origin=None)


@dataclass(frozen=True, slots=True)
class Lock:
    """The whole file. Empty when there is none."""

    plugins: Mapping[str, Pinned] = field(default_factory=dict)


_Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class _DefinitionEntry(Table):
    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    side_effects: str
    idempotent: bool
    requires: list[str]
    timeout_s: float
    isolation: str
    execution_mode: str
    limits: LimitsTable
    idle_timeout_s: float | None = None
    prepares_arguments: bool = False
    claims: list[str] = Field(default=[])
    schema_problem: str = ""


class _ToolEntry(Table):
    digest: _Digest
    definition: _DefinitionEntry


class _OriginEntry(Table):
    file: str
    digest: _Digest


class _PluginEntry(Table):
    version: str
    digest: _Digest
    origin: _OriginEntry | None = None
    tools: dict[str, _ToolEntry]


class _LockFile(Table):
    version: int
    plugins: dict[str, _PluginEntry]


class _DuplicateKeyError(ValueError):
    """An object has a key twice. JSON parsers differ in which one counts, so both are refused."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key[:128]


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _DuplicateKeyError(first_duplicate(pairs) or "")
    return made


def read_lock(path: Path) -> Lock:
    """Read the lock; an absent one is empty.

    Raises:
        ConfigError: it isn't what this program writes. Nothing is guessed: a lock that can't be read protects nothing.
    """
    raw = _read(path)
    if raw is None:
        return Lock()
    if len(raw) > LOCK_LIMIT_BYTES:
        raise ConfigError(path, f"is larger than {LOCK_LIMIT_BYTES} bytes", hint=_REMEDY)
    return _parsed(raw, path)


@functools.lru_cache(maxsize=1)  # each reload of a plugin reads what is there, and what is there is the same as before
def _parsed(raw: bytes, path: Path) -> Lock:
    try:
        data = json.loads(raw, object_pairs_hook=_without_duplicates)
        if _SURROGATE.search(raw):
            orjson.loads(raw)  # refuses lone ones, which could be read and never be written
    except json.JSONDecodeError as exc:
        raise ConfigError(path, f"is not JSON: {exc.msg}", line=exc.lineno, hint=_REMEDY) from exc
    except _DuplicateKeyError as exc:
        raise ConfigError(path, f"has the key `{printable(exc.key)}` twice in one object", hint=_REMEDY) from exc
    except (ValueError, RecursionError) as exc:
        raise ConfigError(path, "is not JSON", hint=_REMEDY) from exc
    version = data.get("version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > LOCK_VERSION:
        raise ConfigError(
            path, f"is of version {version}, and this program reads {LOCK_VERSION}", hint="use a newer fumehood"
        )
    try:
        file = _LockFile.model_validate(data)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(path, f"`{key}`: {first['msg']}", key=key, hint=_REMEDY) from exc
    if file.version != LOCK_VERSION:
        raise ConfigError(path, f"is of version {file.version}, and this program reads {LOCK_VERSION}", hint=_REMEDY)
    return Lock({name: _pinned(path, name, entry) for name, entry in file.plugins.items()})


def _read(path: Path) -> bytes | None:
    """What is in the file, up to a byte above the limit. None: there is none."""
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer, since nothing here could interrupt that.
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as opened:  # noqa: PTH123 - likewise
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise ConfigError(path, "is not a regular file", hint=_REMEDY)
            return opened.read(LOCK_LIMIT_BYTES + 1)
    except FileNotFoundError:
        if path.is_symlink():  # to what is not mounted, say: as no lock it would have everything pinned anew
            raise ConfigError(path, "is a symlink that leads nowhere", hint="mend it, or remove it") from None
        return None
    except OSError as exc:
        raise ConfigError(path, f"can't be read: {exc.strerror}") from exc


def lock_text(lock: Lock) -> str:
    """The file's text: the same lock gives the same bytes, one key a line, so that version control shows changes."""
    plugins = {
        name: {
            "version": pinned.version,
            "digest": pinned.digest,
            **({"origin": asdict(pinned.origin)} if pinned.origin else {}),
            "tools": {
                tool.name: {"digest": definition_digest(tool), "definition": definition_json(tool)}
                for tool in pinned.tools
            },
        }
        for name, pinned in lock.plugins.items()
    }
    file = {"version": LOCK_VERSION, "plugins": plugins}
    return json.dumps(file, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def pin_plugins(path: Path, pins: Mapping[str, Pinned]) -> Lock:
    """Accept these plugins as they are, leave the others, and return the lock as it then stands.

    The file is replaced as a whole, so that a reader or a crash sees the old or the new one. An flock
    serialises processes that pin at the same time. Blocks for up to 5 s.

    Raises:
        ConfigError: the lock there can't be read, or the folder can't be written.
    """
    return _update(path, lambda old: Lock({**old.plugins, **pins}))


def unpin_plugin(path: Path, name: str) -> bool:
    """Remove one plugin from the lock, as `pin_plugins` adds it. Whether it was there.

    Raises:
        ConfigError: likewise.
    """
    if not path.exists():
        return False
    found = name in read_lock(path).plugins
    if found:
        _update(path, lambda old: Lock({each: pinned for each, pinned in old.plugins.items() if each != name}))
    return found


def _update(path: Path, change: Callable[[Lock], Lock]) -> Lock:
    try:
        with changing(path) as real:
            old = read_lock(path)
            new = change(old)
            if new != old or not real.exists():
                _replace(real, lock_text(new))
            return new
    except OSError as exc:
        hint = "make the folder writable, or pin beforehand with `fumehood plugin add PATH`"
        raise unwritable(path, exc, hint) from exc


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # the new name is durable only with its folder
    finally:
        os.close(folder)


def _pinned(path: Path, name: str, entry: _PluginEntry) -> Pinned:
    found = [_tool(path, f"plugins.{name}.tools.{tool}", tool, each) for tool, each in sorted(entry.tools.items())]
    origin = Origin(entry.origin.file, entry.origin.digest) if entry.origin else None
    return Pinned(
        version=entry.version,
        digest=entry.digest,
        tools=tuple(definition for definition, _ in found),
        origin=origin,
        is_usable=all(is_usable for _, is_usable in found),
    )


def _tool(path: Path, key: str, name: str, entry: _ToolEntry) -> tuple[ToolDefinition, bool]:
    definition, problems, is_usable = pinned_definition(_raw(entry.definition))
    if definition is None:
        first = problems[0]
        raise ConfigError(path, f"`{key}`: `{first.field}` {first.problem}", key=key, hint=_REMEDY)
    if definition.name != name or definition_digest(definition) != entry.digest:
        raise ConfigError(path, f"`{key}` doesn't have the digest that stands beside it", key=key, hint=_REMEDY)
    return definition, is_usable


def _raw(entry: _DefinitionEntry) -> RawDefinition:
    return RawDefinition(
        name=entry.name,
        title=entry.title,
        description=entry.description,
        input_schema_json=json.dumps(entry.input_schema),
        output_schema_json="" if entry.output_schema is None else json.dumps(entry.output_schema),
        side_effects=entry.side_effects,
        idempotent=entry.idempotent,
        requires=tuple(entry.requires),
        timeout_s=entry.timeout_s,
        idle_timeout_s=entry.idle_timeout_s,
        prepares_arguments=entry.prepares_arguments,
        claims=tuple(entry.claims),
        schema_problem=entry.schema_problem,
        isolation=entry.isolation,
        execution_mode=entry.execution_mode,
        limits=entry.limits.model_dump(exclude_none=True),
    )
