"""Validates tool definitions, whether from a manifest, a `Ready` frame or the lock, and converts them to one type."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from fumehood_sandbox import Level

from fumehood_server.model.capability import CapabilityError, parse_capability
from fumehood_server.model.nearest import nearest
from fumehood_server.model.schema import (
    MAX_PATTERN_STATES,
    SCHEMA_LIMIT_BYTES,
    SchemaError,
    canonical_schema,
    check_schema,
    pattern_states,
    sha256_of,
)
from fumehood_server.model.tool import (
    DEFAULT_TIMEOUT_S,
    MAX_CPUS,
    MAX_TIMEOUT_S,
    MIN_SCRATCH_BYTES,
    MIN_SCRATCH_FILES,
    DeclaredLimits,
    ExecutionMode,
    Isolation,
    ToolDefinition,
)

SCHEMA_FIELDS = frozenset({"input_schema", "output_schema"})
NAME_HINT = "1 to 64 of a-z, 0-9 and _, starting with a letter"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MAX_TITLE_CHARS = 128
_MAX_DESCRIPTION_CHARS = 8192
_MAX_CAPABILITIES = 64
_MAX_CLAIMS = 16
_CLAIM = re.compile(r"[A-Za-z]{1,64}: (?:true|false)")
MAX_PLUGIN_STATES = 400_000
"""Of the patterns of all schemas of a plugin together: each process of it that sends others has them checked anew."""
_COSTLY_STATES = 2_000
_COMPUTING = threading.Lock()
"""Held while a definition is checked, for milliseconds: threads that compute take the interpreter from the loop."""
_PAUSES = 4
_LONGEST_PAUSE_S = 0.5
_MAX_LIMIT = 2**53 - 1
"""Largest whole number that canonical JSON holds (RFC 8785)."""

_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawDefinition:
    """A tool as it was declared, unchecked. Enum words are as they were written; an empty one was left out."""

    name: str
    title: str = ""
    description: str = ""
    input_schema_json: str = ""
    output_schema_json: str = ""
    side_effects: str = ""
    idempotent: bool = False
    requires: tuple[str, ...] = ()
    timeout_s: float | None = None
    idle_timeout_s: float | None = None
    isolation: str = ""
    execution_mode: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)
    prepares_arguments: bool = False
    claims: tuple[str, ...] = ()
    schema_problem: str = ""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """What is wrong with one field of a definition. `field` is its name in the manifest."""

    field: str
    problem: str
    hint: str = ""


_TOO_MANY_STATES = FieldProblem(
    "input_schema",
    f"has patterns that are too many: those of a plugin's tools may take {MAX_PLUGIN_STATES:,} states together",
    r"repeat less in them, bound the length by maxLength, not by {…}, and name fewer Unicode classes (\p{…})",
)


def pinned_definition(raw: RawDefinition) -> tuple[ToolDefinition | None, tuple[FieldProblem, ...], bool]:
    """The same of a definition that was accepted once, and whether its schemas are taken still.

    One whose schemas were taken by other bounds, or by another library, keeps them, for nobody but who compares them.
    """
    definition, problems = check_definition(raw)
    if definition is not None or any(each.field not in SCHEMA_FIELDS for each in problems):
        return definition, problems, True
    return *_checked(raw, _Checker(_as_pinned)), False


def check_definition(raw: RawDefinition) -> tuple[ToolDefinition | None, tuple[FieldProblem, ...]]:
    """The definition, or None and everything that is wrong with it. Never raises."""
    return _checked(raw, _Checker(check_schema))


class PluginSchemas:
    """Checks the definitions of one plugin, whose patterns have a bound together. Not for an event loop's thread.

    No other thread runs while a pattern is built. So that a plugin with many is no burden to those whom a sidecar
    serves meanwhile, one definition of all plugins is checked at a time, and after each that has costly ones, whatever
    came of it, its plugin waits several times as long as that took.
    """

    def __init__(self) -> None:
        """None was checked yet."""
        self._states_left = MAX_PLUGIN_STATES

    def check(self, raw: RawDefinition) -> tuple[ToolDefinition | None, tuple[FieldProblem, ...]]:
        """As `check_definition`. Counts the patterns of what is built, also of what is refused then."""
        with _COMPUTING:
            begun = time.monotonic()
            states = sum(map(_built_states, (raw.input_schema_json, raw.output_schema_json)))
            if states > self._states_left:
                return None, (_TOO_MANY_STATES,)
            self._states_left -= states
            checked = check_definition(raw)
            took_s = time.monotonic() - begun
        if states > _COSTLY_STATES:
            time.sleep(min(_PAUSES * took_s, _LONGEST_PAUSE_S))
        return checked


def _built_states(schema_json: str) -> int:
    """What its patterns take that are built to check it. None are of what is no JSON, or over the bound of a schema."""
    try:
        states = pattern_states(schema_json) if len(schema_json) <= SCHEMA_LIMIT_BYTES else 0
    except (ValueError, RecursionError):
        return 0
    return states if states <= MAX_PATTERN_STATES else 0


def _as_pinned(text: str, *, arguments: bool) -> str:  # noqa: ARG001 - as check_schema has it
    return canonical_schema(text)


def _checked(raw: RawDefinition, checker: _Checker) -> tuple[ToolDefinition | None, tuple[FieldProblem, ...]]:
    level = checker.level(raw.side_effects)
    definition = ToolDefinition(
        name=checker.name(raw.name),
        title=checker.title(raw.title),
        description=checker.description(raw.description),
        input_schema_json=checker.schema("input_schema", raw.input_schema_json, arguments=True),
        output_schema_json=checker.schema("output_schema", raw.output_schema_json, arguments=False),
        side_effects=level or Level.NONE,
        idempotent=raw.idempotent,
        requires=checker.requires(raw.requires, level),
        timeout_s=checker.timeout("timeout_s", raw.timeout_s) or DEFAULT_TIMEOUT_S,
        idle_timeout_s=checker.timeout("idle_timeout_s", raw.idle_timeout_s),
        isolation=checker.word("isolation", raw.isolation, Isolation, Isolation.PROCESS),
        execution_mode=checker.word("execution_mode", raw.execution_mode, ExecutionMode, ExecutionMode.PARALLEL),
        limits=checker.limits(raw.limits),
        prepares_arguments=raw.prepares_arguments,
        claims=checker.claims(raw.claims),
        schema_problem=raw.schema_problem,
    )
    return (None if checker.problems else definition), tuple(checker.problems)


def valid_name(name: str) -> bool:
    """Whether a tool can have this name."""
    return _NAME.fullmatch(name) is not None


def definition_json(definition: ToolDefinition) -> dict[str, Any]:
    """The definition as a JSON object, as it is hashed and kept in the lock."""
    declared = ((each.name, getattr(definition.limits, each.name)) for each in fields(definition.limits))
    limits = {name: value for name, value in declared if value is not None}
    output = json.loads(definition.output_schema_json) if definition.output_schema_json else None
    return {
        "name": definition.name,
        "title": definition.title,
        "description": definition.description,
        "input_schema": json.loads(definition.input_schema_json),
        "output_schema": output,
        "side_effects": definition.side_effects.value,
        "idempotent": definition.idempotent,
        "requires": list(definition.requires),
        "timeout_s": definition.timeout_s,
        "isolation": definition.isolation.value,
        "execution_mode": definition.execution_mode.value,
        "limits": limits,
        # Not where there is none: digests that were pinned before it was known stay as they are.
        **({} if definition.idle_timeout_s is None else {"idle_timeout_s": definition.idle_timeout_s}),
        **({"prepares_arguments": True} if definition.prepares_arguments else {}),
        **({"claims": list(definition.claims)} if definition.claims else {}),
        **({"schema_problem": definition.schema_problem} if definition.schema_problem else {}),
    }


def definition_digest(definition: ToolDefinition) -> str:
    """SHA-256 of the definition's canonical JSON (RFC 8785). Of a `schema_problem` it has that there is one.

    Its words are a library's, or ours of one release, which is no change of the tool.
    """
    hashed = definition_json(definition)
    for name in ("timeout_s", "idle_timeout_s"):
        if name in hashed and float(hashed[name]).is_integer():  # which RFC 8785 writes alike, and its library slower
            hashed[name] = int(hashed[name])
    if "schema_problem" in hashed:
        hashed["schema_problem"] = True
    return sha256_of(hashed)


class _Checker:
    """One method for each field: returns the checked value, or adds a problem and returns any value of the type."""

    def __init__(self, take_schema: Callable[..., str]) -> None:
        self.problems: list[FieldProblem] = []
        self._take_schema = take_schema

    def _add_problem(self, name: str, problem: str, hint: str = "") -> None:
        self.problems.append(FieldProblem(name, problem, hint))

    def name(self, name: str) -> str:
        if not valid_name(name):
            self._add_problem("name", f'"{name[:80]}" is not a tool\'s name' if name else "is missing", NAME_HINT)
        return name

    def title(self, title: str) -> str:
        if len(title) > _MAX_TITLE_CHARS or not title.isprintable():
            self._add_problem("title", f"must be one line of at most {_MAX_TITLE_CHARS} printable characters")
        return title

    def description(self, description: str) -> str:
        if not description.strip():
            self._add_problem(
                "description", "is missing", "say what the tool does and when to use it: a model reads it"
            )
        elif len(description) > _MAX_DESCRIPTION_CHARS:
            self._add_problem("description", f"is longer than {_MAX_DESCRIPTION_CHARS} characters")
        else:
            try:
                description.encode()
            except UnicodeEncodeError:  # lone surrogates
                self._add_problem("description", "is not valid Unicode")
        return description

    def schema(self, name: str, text: str, *, arguments: bool) -> str:
        if not text:
            if arguments:
                self._add_problem(name, "is missing", 'no arguments: {"type": "object", "additionalProperties": false}')
            return ""
        try:
            return self._take_schema(text, arguments=arguments)
        except SchemaError as exc:
            self._add_problem(name, exc.problem, exc.hint)
            return ""

    def level(self, word: str) -> Level | None:
        if not word:
            names = ", ".join(f'"{level}"' for level in Level)
            self._add_problem("side_effects", "is missing", f"declare one of {names}")
            return None
        level = self.word("side_effects", word, Level, Level.NONE)
        return level if level == word else None

    def word(self, name: str, word: str, words: type[_Word], default: _Word) -> _Word:
        if not word:
            return default
        try:
            return words(word)
        except ValueError:
            self._add_problem(name, f'unknown word "{word[:80]}"', nearest(word[:80], words))
            return default

    def requires(self, texts: tuple[str, ...], level: Level | None) -> tuple[str, ...]:
        if len(texts) > _MAX_CAPABILITIES:
            self._add_problem("requires", f"has more than {_MAX_CAPABILITIES} entries")
            return ()
        for text in texts:
            try:
                kind = parse_capability(text).kind
            except CapabilityError as exc:
                self._add_problem("requires", exc.problem, exc.hint)
                continue
            if level and not level.allows(kind.least_level):
                problem = f'"{text}" can\'t be had at level "{level}"'
                self._add_problem("requires", problem, f'declare side_effects = "{kind.least_level}"')
        return tuple(sorted(set(texts)))

    def claims(self, claims: tuple[str, ...]) -> tuple[str, ...]:
        if len(claims) > _MAX_CLAIMS or not all(_CLAIM.fullmatch(each) for each in claims):
            self._add_problem("claims", f"must be at most {_MAX_CLAIMS} annotations of a tool, each `NAME: VALUE`")
            return ()
        return claims

    def timeout(self, name: str, timeout_s: float | None) -> float | None:
        if timeout_s is None:
            return None
        if not (math.isfinite(timeout_s) and 0 < timeout_s <= MAX_TIMEOUT_S):
            self._add_problem(name, f"must be more than 0 and at most {MAX_TIMEOUT_S:g} seconds, not {timeout_s:g}")
            return None
        return float(timeout_s)

    def limits(self, limits: Mapping[str, int]) -> DeclaredLimits:
        for name, value in limits.items():
            if not 0 < value <= _MAX_LIMIT:
                self._add_problem(f"limits.{name}", f"must be more than 0 and below 2^53, not {value}")
            elif name == "scratch_bytes" and value < MIN_SCRATCH_BYTES:
                self._add_problem(f"limits.{name}", f"must be at least {MIN_SCRATCH_BYTES}, not {value}")
            elif name == "scratch_files" and value < MIN_SCRATCH_FILES:
                self._add_problem(f"limits.{name}", f"must be at least {MIN_SCRATCH_FILES}, not {value}")
            elif name == "cpus" and value > MAX_CPUS:
                self._add_problem(f"limits.{name}", f"must be at most {MAX_CPUS}, not {value}")
        return DeclaredLimits(**limits)
