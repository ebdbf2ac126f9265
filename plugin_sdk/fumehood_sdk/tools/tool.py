"""One tool: its declaration, its function, and how a call of it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fumehood_sdk.call import Call
from fumehood_sdk.context import Context
from fumehood_sdk.errors import PluginError
from fumehood_sdk.json_text import dumps
from fumehood_sdk.tools.arguments import make_validator, validate_arguments
from fumehood_sdk.tools.declaration import MAX_DESCRIPTION_CHARACTERS, MAX_SCHEMA_BYTES, Declaration
from fumehood_sdk.tools.output import Output
from fumehood_sdk.tools.preparation import Preparation, Prepare
from fumehood_sdk.tools.signature import read_signature
from fumehood_sdk.wire.plugin_frames import Sent


class Tool:
    """A function with its declaration, the validator of its arguments and the serializer of its results."""

    interruptible = True

    __slots__ = (
        "_context_name",
        "_function",
        "_output",
        "_validator",
        "declaration",
        "definition",
        "description",
        "input_schema_json",
        "is_async",
        "name",
        "output_schema_json",
        "preparation",
        "sequential",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        declaration: Declaration,
        description: str | None,
        namespace: Mapping[str, Any],
        prepare: Prepare | None = None,
    ) -> None:
        """Read the function.

        Raises:
            PluginError: it can't be a tool; the message says what to change.
        """
        self.name = declaration.name
        self.declaration = declaration
        signature = read_signature(function, self.name, description, namespace)
        if len(signature.description) > MAX_DESCRIPTION_CHARACTERS:
            raise PluginError(
                f"{self.name}: its description has {len(signature.description)} characters; "
                f"{MAX_DESCRIPTION_CHARACTERS} are allowed"
            )
        self.description = signature.description
        self.is_async = signature.is_async
        self.sequential = declaration.sequential
        self.preparation = None if prepare is None else Preparation(self.name, prepare)
        self._function = function
        self._context_name = signature.context_name
        try:
            self._validator = make_validator(self.name, signature.parameters, namespace)
        except Exception as error:
            raise PluginError(f"{self.name}: its parameters can't be described by a schema: {error}") from error
        try:
            self._output = Output(signature.returns)
        except Exception as error:
            raise PluginError(f"{self.name}: its result can't be described by a schema: {error}") from error
        self.input_schema_json = _schema_json(self.name, self._validator.json_schema)
        output_schema = self._output.json_schema
        self.output_schema_json = b"" if output_schema is None else _schema_json(self.name, output_schema)
        self.definition = declaration.encode_definition(
            self.description, self.input_schema_json, self.output_schema_json
        )

    @property
    def output_annotation(self) -> Any:  # noqa: ANN401 - an annotation can be anything
        """The type of the structured output."""
        return self._output.annotation

    def wrap_function(self, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Have what `around` makes of the function run in its place, from the next call on."""
        self._function = around(self._function)

    def prepare_arguments(self, call: Call) -> dict[str, Any]:
        """The function's keyword arguments for a call.

        Raises:
            ToolError: the arguments are wrong.
        """
        prepared = validate_arguments(self._validator, call.arguments_json)
        if self._context_name is not None:
            prepared[self._context_name] = Context(call)
        return prepared

    def invoke(self, call: Call) -> Sent:
        """Run a synchronous tool. Raises what it raises."""
        return self._output.encode_result(self._function(**self.prepare_arguments(call)))

    async def invoke_async(self, call: Call) -> Sent:
        """Run an asynchronous tool. Raises what it raises."""
        return self._output.encode_result(await self._function(**self.prepare_arguments(call)))


def _schema_json(tool: str, schema: dict[str, Any]) -> bytes:
    written = dumps(schema)
    if len(written) > MAX_SCHEMA_BYTES:
        raise PluginError(f"{tool}: a schema of {len(written)} bytes is too large; {MAX_SCHEMA_BYTES} are allowed")
    return written
