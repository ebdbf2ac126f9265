"""Steps of a plan, as they stand in its JSON: read by pydantic, since whoever writes them may be a model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, StringConstraints, model_validator

from fumehood_server.orchestration.plans.references import MAX_POINTER_CHARS, Reference, read_reference, references_in
from fumehood_server.orchestration.request import OutputContract, Rule

MAX_STEPS = 128
"""Whatever a plan's policy says."""
MAX_RETRIES = 5
MAX_TIMEOUT_S = 24 * 3600
MAX_PROMPT_PARTS = 64
MAX_RULES = 64
MAX_TEXT_CHARS = 64 * 1024
"""Of one text in a step."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,32}$")]
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT_CHARS)]
Pointer = Annotated[str, StringConstraints(max_length=MAX_POINTER_CHARS, pattern=r"^(/|$)")]


class Part(BaseModel):
    """What all parts of a plan have: nothing is guessed, and nothing unknown is passed over."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)


class PlanRule(Part):
    """A rule over a value, as in `ValidationRule` of the API."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    pointer: Pointer = ""
    one_of: Annotated[tuple[Any, ...], FailFast()] = ()
    pattern: Text = ""
    minimum: float | None = None
    maximum: float | None = None


class Contract(Part):
    """What a value has to be. At least one of them says something."""

    json_schema: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    rules: Annotated[tuple[PlanRule, ...], FailFast(), Field(max_length=MAX_RULES)] = ()
    repair_allowed: bool = False
    semantic_check: Annotated[str, StringConstraints(max_length=4096)] = ""

    @cached_property
    def contract(self) -> OutputContract:
        """The same, for what checks outputs: one object, by which that knows what it has made of it."""
        return OutputContract(
            schema=self.json_schema,
            repair_allowed=self.repair_allowed,
            strict=True,
            rules=tuple(Rule(**each.model_dump()) for each in self.rules),
            semantic_check=self.semantic_check,
        )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.json_schema is None and not self.rules and not self.semantic_check:
            raise ValueError('one of "schema", "rules" and "semantic_check" is needed')
        return self


def _as_parts(prompt: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(prompt, str):
        return (prompt,)
    return tuple(prompt) if isinstance(prompt, list) else prompt


_NONE = OutputContract()


class InferAction(Part):
    """Ask the model once."""

    kind: Literal["infer"]
    prompt: Annotated[
        tuple[Text | dict[str, Any], ...],
        FailFast(),
        Field(min_length=1, max_length=MAX_PROMPT_PARTS),
        BeforeValidator(_as_parts, json_schema_input_type=str | list[str | dict[str, Any]]),
    ]
    """Texts and references, put one after the other."""
    sees_conversation: bool = True
    """Whether the run's messages stand before the prompt."""
    output: Contract | None = None
    """None: text."""

    @property
    def template(self) -> Any:  # noqa: ANN401 - any JSON value
        """Where references stand."""
        return self.prompt

    @property
    def contract(self) -> OutputContract:
        """What its answer has to be."""
        return _NONE if self.output is None else self.output.contract

    @model_validator(mode="after")
    def _parts_are_references(self) -> Self:
        for part in self.prompt:
            if isinstance(part, dict) and read_reference(part) is None:
                raise ValueError('a part of a prompt is text, {"$from": …} or {"$item": …}')
        return self


class ToolAction(Part):
    """Call a tool once."""

    kind: Literal["tool"]
    tool: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    arguments: dict[str, Any] = {}
    """With references in it, or one itself."""

    @property
    def template(self) -> Any:  # noqa: ANN401 - any JSON value
        """Where references stand."""
        return self.arguments


Action = Annotated[InferAction | ToolAction, Field(discriminator="kind")]


class StepBase(Part):
    """What steps of each kind have."""

    name: Name
    after: Annotated[tuple[Name, ...], FailFast(), Field(max_length=MAX_STEPS)] = ()
    """Steps that end before it, beside those that it refers to."""
    retries: Annotated[int, Field(ge=0, le=MAX_RETRIES)] = 0
    on_failure: Literal["fail", "skip"] = "fail"
    """`skip`: the plan goes on without it after what a plan may recover from."""
    timeout_s: Annotated[float, Field(gt=0, le=MAX_TIMEOUT_S)] | None = None

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """What it refers to."""
        return tuple(references_in(self._templates()))

    @cached_property
    def dependencies(self) -> frozenset[str]:
        """Steps that it comes after."""
        return frozenset(self.after) | {each.step for each in self.references if each.step is not None}

    @property
    def kinds(self) -> Mapping[str, str]:
        """Kinds that it needs, by their JSON pointers within it: a `map` needs that of its action too."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _references_are_whole(self) -> Self:
        _ = self.references
        return self

    def _templates(self) -> list[Any]:
        raise NotImplementedError


class InferStep(InferAction, StepBase):
    """The model is asked. Its output: the answer's text, or its JSON where `output` has a schema."""

    @property
    def kinds(self) -> Mapping[str, str]:
        """Its own."""
        return {"/kind": self.kind}

    def _templates(self) -> list[Any]:
        return [self.template]


class ToolStep(ToolAction, StepBase):
    """A tool is called. Its output: the structured result, or its text where there is none."""

    @property
    def kinds(self) -> Mapping[str, str]:
        """Its own."""
        return {"/kind": self.kind}

    def _templates(self) -> list[Any]:
        return [self.template]


class ValidateStep(Contract, StepBase):
    """An earlier output is checked. Its output: what was found to be right."""

    kind: Literal["validate"]
    of: dict[str, Any]
    """A reference to a step."""

    @property
    def kinds(self) -> Mapping[str, str]:
        """Its own."""
        return {"/kind": self.kind}

    @property
    def subject(self) -> Reference:
        """What is checked."""
        found = read_reference(self.of)
        if found is None or found.step is None:
            raise AssertionError("it was read")
        return found

    def _templates(self) -> list[Any]:
        return [self.of]

    @model_validator(mode="after")
    def _of_is_a_reference(self) -> Self:
        found = read_reference(self.of)
        if found is None or found.step is None:
            raise ValueError('"of" is {"$from": "a step"}')
        return self


class MapStep(StepBase):
    """An action for each item of a list. Its output: the list of theirs."""

    kind: Literal["map"]
    over: list[Any] | dict[str, Any]
    """Items, or a reference to them."""
    do: Action
    on_item_failure: Literal["fail", "skip"] = "fail"
    """`skip`: the item's place is null."""

    @property
    def kinds(self) -> Mapping[str, str]:
        """Its own, and its action's."""
        return {"/kind": self.kind, "/do/kind": self.do.kind}

    def _templates(self) -> list[Any]:
        return [self.over, self.do.template]

    @model_validator(mode="after")
    def _over_is_a_list_or_reference(self) -> Self:
        if isinstance(self.over, dict) and read_reference(self.over) is None:
            raise ValueError('"over" is a list or {"$from": "a step"}')
        if any(each.step is None for each in references_in(self.over)):
            raise ValueError('there is no item yet where "over" is read')
        return self


Step = Annotated[InferStep | ToolStep | ValidateStep | MapStep, Field(discriminator="kind")]
