"""JSON Schemas and validators by pydantic, for every type that it knows. Importing this module imports pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter, create_model
from pydantic import Field as PydanticField
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

if TYPE_CHECKING:
    from pydantic_core import CoreSchema, SchemaSerializer, core_schema

    from fumehood_sdk.schema.parameter import Parameter


class _WithoutFieldTitles(GenerateJsonSchema):
    """Leaves out the titles that pydantic makes of names: a model pays for each word and learns nothing from these."""

    def field_title_should_be_set(
        self,
        schema: CoreSchema  # noqa: ARG002 - pydantic's signature
        | core_schema.ModelField
        | core_schema.DataclassField
        | core_schema.TypedDictField,
    ) -> bool:
        """Never."""
        return False


class PydanticValidator:
    """Validates a tool's arguments by a pydantic model that is made for them."""

    __slots__ = ("_model", "_names", "json_schema")

    def __init__(self, tool: str, parameters: list[Parameter], namespace: Mapping[str, Any]) -> None:
        """Make the model. Raises what pydantic raises for a type that it can't check."""
        # The model's own names are made up: an argument may be called "schema" or "copy", which a model's field can't.
        fields: dict[str, Any] = {}
        self._names: list[tuple[str, str]] = []
        for index, parameter in enumerate(parameters):
            given: dict[str, Any] = {"alias": parameter.name}
            if parameter.description and not _described(parameter.annotation):
                given["description"] = parameter.description
            annotation = parameter.annotation
            if isinstance(parameter.default, FieldInfo):
                annotation = _annotated(annotation, parameter.default)
            elif parameter.has_default:
                given["default"] = parameter.default
            fields[f"argument_{index}"] = (annotation, PydanticField(**given))
            self._names.append((f"argument_{index}", parameter.name))
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
        self._model = create_model(tool, __config__=config, **fields)
        self._model.model_rebuild(_types_namespace=namespace)
        self.json_schema = self._model.model_json_schema(by_alias=True, schema_generator=_WithoutFieldTitles)
        self.json_schema.pop("title", None)

    def validate_json(self, arguments_json: bytes) -> dict[str, Any]:
        """Check arguments. Raises `pydantic_core.ValidationError`."""
        values = self._model.model_validate_json(arguments_json, strict=True).__dict__
        return {name: values[field] for field, name in self._names}


def output_schema(annotation: Any) -> tuple[dict[str, Any], SchemaSerializer]:  # noqa: ANN401 - can be anything
    """The JSON Schema of a return type, and what writes its values."""
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    json = adapter.json_schema(mode="serialization", schema_generator=_WithoutFieldTitles)
    return json, adapter.serializer


def _annotated(annotation: Any, field: FieldInfo) -> Any:  # noqa: ANN401
    from typing import Annotated  # noqa: PLC0415 - rare

    return Annotated[annotation, field]


def _described(annotation: Any) -> bool:  # noqa: ANN401
    return any(getattr(entry, "description", None) for entry in getattr(annotation, "__metadata__", ()))
