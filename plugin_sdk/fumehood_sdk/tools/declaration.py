"""Validates the arguments of `@plugin.tool`, and encodes them as a `ToolDefinition`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fumehood_sdk.call import MAX_TIMEOUT_S
from fumehood_sdk.errors import PluginError
from fumehood_sdk.wire import varint
from fumehood_sdk.wire.fields import bytes_field, encode_text, number_field, optional_bytes_field, text_field

LEVELS = ("none", "read", "write", "external")
"""Side-effect levels; a level's number on the wire is its place, from 1."""
ISOLATIONS = ("process", "call")
MAX_DESCRIPTION_CHARACTERS = 8192
MAX_SCHEMA_BYTES = 256 * 1024
LIMITS = (
    "memory_bytes",
    "cpu_s",
    "processes",
    "open_files",
    "file_size_bytes",
    "scratch_bytes",
    "output_bytes",
    "log_bytes_per_second",
    "cpus",
    "scratch_files",
)
"""Names of limits in the order of their numbers in `Limits` of fumehood/v1/tool.proto, from 1."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_CAPABILITY = re.compile(
    r"read|write|proxy|binary:[A-Za-z0-9][A-Za-z0-9._+-]*|host:[A-Za-z0-9][A-Za-z0-9.-]*:[0-9]{1,5}|secret:[A-Za-z0-9_.-]+"
)


class Declaration:
    """What an author declares of one tool beside its function: side effects, limits, isolation. Validated when made."""

    __slots__ = (
        "idempotent",
        "idle_timeout_s",
        "isolation",
        "limits",
        "name",
        "prepares_arguments",
        "requires",
        "sequential",
        "side_effects",
        "timeout_s",
        "title",
    )

    def __init__(
        self,
        *,
        name: str,
        title: str,
        side_effects: str | None,
        idempotent: bool,
        requires: Iterable[str],
        timeout_s: float | None,
        idle_timeout_s: float | None,
        isolation: str | None,
        sequential: bool,
        limits: Mapping[str, int] | None,
        prepares_arguments: bool = False,
    ) -> None:
        self.name = _checked_name(name)
        self.title = title
        self.side_effects = _checked_level(name, side_effects)
        self.idempotent = idempotent
        self.requires = _checked_requires(name, requires)
        self.timeout_s = _checked_timeout(name, "timeout_s", timeout_s)
        self.idle_timeout_s = _checked_timeout(name, "idle_timeout_s", idle_timeout_s)
        self.isolation = _checked_isolation(name, isolation)
        self.sequential = sequential
        self.limits = _checked_limits(name, limits or {})
        self.prepares_arguments = prepares_arguments

    def encode_definition(self, description: str, input_schema_json: bytes, output_schema_json: bytes) -> bytes:
        """Write a `ToolDefinition`."""
        limits = b"".join(
            bytes((LIMITS.index(limit) + 1 << 3,)) + varint.encode(value) for limit, value in self.limits.items()
        )
        return b"".join(
            (
                text_field(0x0A, self.name),
                text_field(0x12, self.title),
                text_field(0x1A, description),
                optional_bytes_field(0x22, input_schema_json),
                optional_bytes_field(0x2A, output_schema_json),
                number_field(0x30, LEVELS.index(self.side_effects) + 1),
                number_field(0x38, int(self.idempotent)),
                *(bytes_field(0x42, encode_text(capability)) for capability in self.requires),
                _duration_field(0x4A, self.timeout_s),
                number_field(0x50, ISOLATIONS.index(self.isolation) + 1 if self.isolation else 0),
                number_field(0x58, 2 if self.sequential else 1),
                optional_bytes_field(0x62, limits),
                _duration_field(0x6A, self.idle_timeout_s),
                number_field(0x70, int(self.prepares_arguments)),
            )
        )


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise PluginError(
            f"{name!r} can't be a tool's name: use 1 to 64 of a-z, 0-9 and _, a letter first; "
            'name="..." gives the tool a name other than its function\'s'
        )
    return name


def _checked_level(tool: str, level: str | None) -> str:
    if level is None:
        raise PluginError(
            f"{tool} does not say what it may do to the world: add side_effects= with one of {_listed(LEVELS)}"
        )
    if level not in LEVELS:
        raise PluginError(f"{tool}: {level!r} is no level of side effects: use one of {_listed(LEVELS)}")
    return level


def _checked_requires(tool: str, requires: Iterable[str]) -> tuple[str, ...]:
    if isinstance(requires, str):
        raise PluginError(f"{tool}: requires= takes a list of capabilities: requires=[{requires!r}]")
    for capability in requires:
        if not _CAPABILITY.fullmatch(capability):
            raise PluginError(
                f"{tool}: {capability!r} is no capability: use read, write, proxy, binary:NAME, host:NAME:PORT or "
                "secret:NAME"
            )
    return tuple(sorted(set(requires)))


def _checked_timeout(tool: str, key: str, timeout_s: float | None) -> float | None:
    if timeout_s is not None and not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise PluginError(f"{tool}: {key}={timeout_s} is out of range: more than 0 and at most {MAX_TIMEOUT_S:.0f}")
    return timeout_s


def _duration_field(tag: int, seconds: float | None) -> bytes:
    if seconds is None:
        return b""
    whole = int(seconds)
    return bytes_field(tag, number_field(0x08, whole) + number_field(0x10, round((seconds - whole) * 1e9)))


def _checked_isolation(tool: str, isolation: str | None) -> str | None:
    if isolation is not None and isolation not in ISOLATIONS:
        raise PluginError(f"{tool}: isolation={isolation!r} is unknown: use one of {_listed(ISOLATIONS)}")
    return isolation


def _checked_limits(tool: str, limits: Mapping[str, int]) -> dict[str, int]:
    for limit, value in limits.items():
        if limit not in LIMITS:
            raise PluginError(f"{tool}: {limit!r} is no limit: use {_listed(LIMITS)}")
        if type(value) is not int or not 0 < value < 1 << 63:
            raise PluginError(f"{tool}: limit {limit}={value!r} must be a whole number above 0")
    return dict(limits)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
