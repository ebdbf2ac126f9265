"""Validates a TOML file by a pydantic model, with errors in the operator's or author's terms."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from fumehood_server.config.toml_source import Key, TomlSource
from fumehood_server.errors import ConfigError
from fumehood_server.model.nearest import nearest

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_Table = TypeVar("_Table", bound="Table")

_KINDS = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
}
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


class Table(BaseModel):
    """A table of a TOML file. Unknown keys are refused, and values are never converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def one_of(words: type[StrEnum], noun: str) -> BeforeValidator:
    """Validator for a field that takes one of the enum's words; `noun` names what they are."""

    def check(value: object) -> StrEnum:
        if isinstance(value, str):
            try:
                return words(value)
            except ValueError:
                raise refused(f'unknown {noun} "{value}"', nearest(value, words)) from None
        raise refused(f"the {noun} must be a string", nearest("", words))

    return BeforeValidator(check)


def refused(problem: str, hint: str = "") -> PydanticCustomError:
    """The error to raise in a validator. `hint` says what to write instead."""
    return PydanticCustomError("refused", "{problem}", {"problem": problem, "hint": hint})


def check_with(check: Callable[[Any], Any]) -> BeforeValidator:
    """Validator from a function that returns the value or raises `refused(...)`."""
    return BeforeValidator(check)


def read_table(model: type[_Table], source: TomlSource) -> _Table:
    """The file as `model`.

    Raises:
        ConfigError: or the source's own class; the first problem of the file, with its line.
    """
    table, problems = try_table(model, source)
    if table is None:
        raise problems[0]
    return table


def try_table(model: type[_Table], source: TomlSource) -> tuple[_Table | None, list[ConfigError]]:
    """The file as `model`, or None and every problem, ordered by line."""
    try:
        return model.model_validate(dict(source.data)), []
    except ValidationError as exc:
        problems = [_problem(each, model, source) for each in exc.errors(include_url=False)]
        return None, sorted(problems, key=lambda each: each.line)


def _problem(error: ErrorDetails, model: type[BaseModel], source: TomlSource) -> ConfigError:
    key: Key = error["loc"]
    name, where = _name(key), _where(key, source)
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return source.problem(key, f"unknown key {name}{where}", nearest(str(key[-1]), _fields(model, key[:-1])))
    if kind == "missing":
        return source.problem(key, f"{name} is missing{where}")
    if kind == "refused":
        return source.problem(key, f"{context['problem']} for {name}{where}", context["hint"])
    if kind in _KINDS:
        hint = f"write [[{key[-1]}]]" if kind == "list_type" and isinstance(error["input"], dict) else ""
        return source.problem(key, f"{name}{where} must be {_KINDS[kind]}", hint)
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return source.problem(key, f"{name}{where} must be {words} {context[bound]}, not {error['input']}")
    return source.problem(key, f"{name}{where}: {error['msg']}")


def _name(key: Key) -> str:
    index = f"[{key[-1]}]" if isinstance(key[-1], int) else ""
    return f"`{next((part for part in reversed(key) if isinstance(part, str)), '')}{index}`"


def _where(key: Key, source: TomlSource) -> str:
    """The table that the key stands in, as its header is written."""
    table = key[:-1]
    while table and isinstance(table[-1], int) and not _is_table(source, table):
        table = table[:-1]
    if isinstance(key[-1], int):
        table = table[:-1]
    header = ".".join(part for part in table if isinstance(part, str))
    if not header:
        return ""
    return f" in [[{header}]]" if isinstance(table[-1], int) else f" in [{header}]"


def _is_table(source: TomlSource, key: Key) -> bool:
    value: Any = source.data
    for part in key:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return False
    return isinstance(value, dict)


def _fields(model: Any, key: Key) -> list[str]:  # noqa: ANN401 - an annotation: a class or a typing construct
    """Names of the keys that are known in the table at `key`."""
    for part in key:
        model = _strip(model)
        if isinstance(model, type) and issubclass(model, BaseModel):
            field = next((f for n, f in model.model_fields.items() if part in {n, f.alias}), None)
            model = field.annotation if field else None
        else:
            model = get_args(model)[-1] if get_origin(model) in {list, dict} else None
    model = _strip(model)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [field.alias or name for name, field in model.model_fields.items()]
    return []


def _strip(annotation: Any) -> Any:  # noqa: ANN401 - likewise
    """The annotation without `Annotated` and `| None`."""
    while get_origin(annotation) not in {None, list, dict}:
        arguments = [each for each in get_args(annotation) if each is not type(None)]
        if get_origin(annotation) is not Annotated and len(arguments) != 1:
            return annotation
        annotation = arguments[0]
    return annotation
