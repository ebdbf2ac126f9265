"""JSON Schemas of the classes that tools return, dataclasses and TypedDicts, without pydantic."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from fumehood_sdk.schema import plain
from fumehood_sdk.schema.plain import Json, NotPlainError


def json_schema_of(annotation: Any) -> Json:  # noqa: ANN401 - an annotation can be anything
    """The JSON Schema of what a value of this type looks like once it is written.

    Raises:
        NotPlainError: pydantic must decide.
    """
    definitions: dict[str, Json] = {}
    known: dict[str, type] = {}
    json = (
        _class_schema(annotation, definitions, known)
        if _is_class(annotation)
        else _type_schema(annotation, definitions, known)
    )
    if isinstance(annotation, type) and annotation.__name__ in known:
        raise NotPlainError
    return {"$defs": definitions, **json} if definitions else json


def _type_schema(annotation: Any, definitions: dict[str, Json], known: dict[str, type]) -> Json:  # noqa: ANN401
    """A type within which classes may stand; each becomes a definition of its own."""
    if _is_class(annotation):
        name = annotation.__name__
        if name not in known:
            known[name] = annotation
            definitions[name] = _class_schema(annotation, definitions, known)
        elif known[name] is not annotation or name not in definitions:
            raise NotPlainError  # two classes of one name, or one within itself
        return {"$ref": f"#/$defs/{name}"}
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list:
        return {"items": _type_schema(arguments[0], definitions, known), "type": "array"}
    if origin is dict and arguments[0] is str:
        values = _type_schema(arguments[1], definitions, known)
        values.pop("title", None)  # as pydantic does
        return {"additionalProperties": values or True, "type": "object"}
    if origin in (typing.Union, types.UnionType) and any(_is_class(choice) for choice in arguments):
        chosen = [choice for choice in arguments if choice is not type(None)]
        alternatives = [_type_schema(choice, definitions, known) for choice in chosen]
        if any("anyOf" in json or not json for json in alternatives):
            raise NotPlainError
        return {"anyOf": alternatives + [{"type": "null"}] * (len(chosen) < len(arguments))}
    return plain.schemas_of(annotation)[1]


def _class_schema(kind: Any, definitions: dict[str, Json], known: dict[str, type]) -> Json:  # noqa: ANN401
    fields = {field.name: field for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else None
    hints = typing.get_type_hints(kind, include_extras=True)
    properties: dict[str, Json] = {}
    required: list[str] = []
    for name, hint in hints.items():
        if fields is None:
            # Where annotations are strings, the class itself did not see its markers.
            marker = typing.get_origin(hint)
            marked = marker in (typing.Required, typing.NotRequired)
            json = _type_schema(typing.get_args(hint)[0] if marked else hint, definitions, known)
            if marker is typing.Required or (not marked and name in kind.__required_keys__):
                required.append(name)
        else:
            field = fields.get(name)  # None: a ClassVar or an InitVar
            if field is None or field.metadata or not field.init or _has_default(field):
                raise NotPlainError
            json = _type_schema(hint, definitions, known)
            required.append(name)
        properties[name] = json
    out: Json = {"properties": properties}
    if required:
        out["required"] = required
    return {**out, "title": kind.__name__, "type": "object"}


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _is_class(annotation: Any) -> bool:  # noqa: ANN401
    """Whether it is a plain dataclass or TypedDict that pydantic has nothing of its own to say about."""
    if not isinstance(annotation, type) or typing.get_origin(annotation) is not None:
        return False
    names = dir(annotation)
    if annotation.__doc__ and not annotation.__doc__.startswith(f"{annotation.__name__}("):
        return False  # its docstring becomes a description, by rules of pydantic's own
    return ("__dataclass_fields__" in names or hasattr(annotation, "__required_keys__")) and not any(
        name.startswith("__pydantic") or name == "__get_pydantic_core_schema__" for name in names
    )
