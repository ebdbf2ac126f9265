"""Failure taxonomy: every error code, its category, and what it means to whom. docs/errors.md is made from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Category(StrEnum):
    """Families of failure; the values are the names that logs and the journal use."""

    INFERENCE = "InferenceFailure"
    TOOL = "ToolFailure"
    CONSTRAINT = "ConstraintFailure"
    VALIDATION = "ValidationFailure"
    ORCHESTRATION = "OrchestrationFailure"
    CONFIGURATION = "ConfigurationFailure"
    CANCELLATION = "Cancellation"


class Code(StrEnum):
    """Every code that a `SystemError` can carry. Stable: a code is never renamed or reused."""

    INFERENCE_ENGINE_ERROR = "INFERENCE_ENGINE_ERROR"
    INFERENCE_MODEL_UNAVAILABLE = "INFERENCE_MODEL_UNAVAILABLE"
    INFERENCE_CONTEXT_EXCEEDED = "INFERENCE_CONTEXT_EXCEEDED"
    INFERENCE_MALFORMED_RESPONSE = "INFERENCE_MALFORMED_RESPONSE"
    TOOL_NOT_FOUND = "TOOL_NOT_FOUND"
    TOOL_EXECUTION_FAILED = "TOOL_EXECUTION_FAILED"
    TOOL_TIMEOUT = "TOOL_TIMEOUT"
    TOOL_UNAVAILABLE = "TOOL_UNAVAILABLE"
    TOOL_DENIED = "TOOL_DENIED"
    TOOL_APPROVAL_REQUIRED = "TOOL_APPROVAL_REQUIRED"
    TOOL_QUOTA_EXCEEDED = "TOOL_QUOTA_EXCEEDED"
    TOOL_RESOURCE_EXHAUSTED = "TOOL_RESOURCE_EXHAUSTED"
    TOOL_OUTCOME_UNKNOWN = "TOOL_OUTCOME_UNKNOWN"
    TOOL_PROTOCOL_ERROR = "TOOL_PROTOCOL_ERROR"
    CONSTRAINT_GRAMMAR_REJECTED = "CONSTRAINT_GRAMMAR_REJECTED"
    CONSTRAINT_SCHEMA_INVALID = "CONSTRAINT_SCHEMA_INVALID"
    CONSTRAINT_JSON_INVALID = "CONSTRAINT_JSON_INVALID"
    CONSTRAINT_ENUM_UNRECOGNIZED = "CONSTRAINT_ENUM_UNRECOGNIZED"
    VALIDATION_RULE_FAILED = "VALIDATION_RULE_FAILED"
    VALIDATION_SEMANTIC_FAILED = "VALIDATION_SEMANTIC_FAILED"
    ORCHESTRATION_STEP_MISMATCH = "ORCHESTRATION_STEP_MISMATCH"
    ORCHESTRATION_ITERATION_LIMIT = "ORCHESTRATION_ITERATION_LIMIT"
    ORCHESTRATION_NO_CONSENSUS = "ORCHESTRATION_NO_CONSENSUS"
    CONFIG_NO_ENGINE = "CONFIG_NO_ENGINE"
    CONFIG_SCHEMA_REQUIRED = "CONFIG_SCHEMA_REQUIRED"
    CONFIG_GRAMMAR_NOT_FOUND = "CONFIG_GRAMMAR_NOT_FOUND"
    CONFIG_SANDBOX_UNAVAILABLE = "CONFIG_SANDBOX_UNAVAILABLE"
    CONFIG_PLUGIN_INVALID = "CONFIG_PLUGIN_INVALID"
    CONFIG_JOURNAL_UNAVAILABLE = "CONFIG_JOURNAL_UNAVAILABLE"
    CANCELLED_TIMEOUT = "CANCELLED_TIMEOUT"
    CANCELLED_SIGNAL = "CANCELLED_SIGNAL"

    @property
    def category(self) -> Category:
        """The family, which the first word of the code names."""
        return _CATEGORY[self.split("_", 1)[0]]


_CATEGORY = {
    "INFERENCE": Category.INFERENCE,
    "TOOL": Category.TOOL,
    "CONSTRAINT": Category.CONSTRAINT,
    "VALIDATION": Category.VALIDATION,
    "ORCHESTRATION": Category.ORCHESTRATION,
    "CONFIG": Category.CONFIGURATION,
    "CANCELLED": Category.CANCELLATION,
}


class Retry(StrEnum):
    """Whether the same call, unchanged, may be made again. `ToolResult.error.retryable` says so of each."""

    NO = "no"
    YES = "yes"
    BY_TOOL = "if the tool says so"
    BY_ENGINE = "if the engine's failure is transient"
    IF_REFILLED = "unless the call takes more than the quota ever has"
    IF_REPEATABLE = "if it was never dispatched, or the tool is idempotent or of level `none` or `read`"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a code tells whoever gets it."""

    when: str
    act: str
    """Who can do something about it, and what."""
    retry: Retry = Retry.NO


MEANINGS: dict[Code, Meaning] = {
    Code.INFERENCE_ENGINE_ERROR: Meaning(
        "an engine failed, or its own filter left nothing of the answer",
        "The operator: `engine` and the message say which. The caller: retry where `retryable` says so.",
        Retry.BY_ENGINE,
    ),
    Code.INFERENCE_MODEL_UNAVAILABLE: Meaning(
        "the model can't be had now: no connection, no answer in time, no key that its provider takes",
        "The operator: the message says what. The caller: retry where `retryable` says so.",
        Retry.BY_ENGINE,
    ),
    Code.INFERENCE_CONTEXT_EXCEEDED: Meaning(
        "the messages are more than the model's context holds",
        "The caller: say less, or begin another session. The operator can lower `history_bytes`.",
    ),
    Code.INFERENCE_MALFORMED_RESPONSE: Meaning(
        "the engine's answer can't be read, or is larger than it may be",
        "The caller: retry where `retryable` says so.",
        Retry.BY_ENGINE,
    ),
    Code.TOOL_NOT_FOUND: Meaning("there is no such tool", "The model: take the name that the message suggests."),
    Code.TOOL_EXECUTION_FAILED: Meaning(
        "the tool failed, or its arguments don't fit its schema",
        "The model: mend what `details` and the message name, or go on without it.",
        Retry.BY_TOOL,
    ),
    Code.TOOL_TIMEOUT: Meaning(
        "the call took longer than the tool's or the request's timeout, or waited too long for a worker or an update",
        "The caller: ask for less, or allow more time. The operator can raise `timeout_s`.",
        Retry.IF_REPEATABLE,
    ),
    Code.TOOL_UNAVAILABLE: Meaning(
        "its process can't be had or died, the sidecar ended, or it is listed as unavailable",
        "The operator: `reasons` or `phase` say what to mend. The caller: retry where `retryable` says so.",
        Retry.IF_REPEATABLE,
    ),
    Code.TOOL_DENIED: Meaning(
        "the operator's rules, the caller's rights or an approver forbid it",
        "The model: go on without it. The operator can allow it; `rules` name what decided.",
    ),
    Code.TOOL_APPROVAL_REQUIRED: Meaning(
        "the call waits for a person, and was to be answered at once",
        "The caller: send it again with the same `call_id` once `approval_id` is decided.",
    ),
    Code.TOOL_QUOTA_EXCEEDED: Meaning(
        "a quota has not as much left as the call takes, or can't count its argument; nothing ran",
        "The caller: again after `retry_after_s`, where `retryable` says so. The operator can raise `quota`'s limit.",
        Retry.IF_REFILLED,
    ),
    Code.TOOL_RESOURCE_EXHAUSTED: Meaning(
        "a limit was reached; `limit` names it",
        "The model: ask for less. The author declares more, up to the operator's caps.",
    ),
    Code.TOOL_OUTCOME_UNKNOWN: Meaning(
        "a call that may have had effects was interrupted after its dispatch",
        "A person: find out what happened, then settle it by `ResolveCall`. Don't repeat it before.",
    ),
    Code.TOOL_PROTOCOL_ERROR: Meaning(
        "the plugin broke the wire", "The author: `violation` names the rule (docs/protocol.md, 1.5)."
    ),
    Code.CONSTRAINT_GRAMMAR_REJECTED: Meaning(
        "a model's output does not follow the grammar of its contract",
        "The caller: an engine that constrains decoding by grammars, more `max_retries`, or a simpler grammar.",
    ),
    Code.CONSTRAINT_SCHEMA_INVALID: Meaning(
        "a tool ran, and its output does not fit its own schema; or a model's output does not fit its contract's",
        "The tool's author: mend the output or the schema. The caller: `faults` name each place of a model's output.",
    ),
    Code.CONSTRAINT_JSON_INVALID: Meaning(
        "a tool ran, and its structured output is not JSON; or a model's output is none",
        "The tool's author: mend the output. The caller: `repair_allowed`, more `max_tokens`, more `max_retries`.",
    ),
    Code.CONSTRAINT_ENUM_UNRECOGNIZED: Meaning(
        "a value of a model's output is none of those that its contract allows, or may be several",
        "The caller: `faults` name each place; `repair_allowed` takes `Yes.` for `yes`.",
    ),
    Code.VALIDATION_RULE_FAILED: Meaning(
        "a model's output breaks a rule of its contract, or the rule can't be used; or a plan breaks its policy",
        "The caller: `faults` name the rules; say in the request what they ask for.",
    ),
    Code.VALIDATION_SEMANTIC_FAILED: Meaning(
        "a model that was asked about an output answered no, or neither yes nor no",
        "The caller: `faults` have its reason; mend the request, or what `semantic_check` asks.",
    ),
    Code.ORCHESTRATION_STEP_MISMATCH: Meaning(
        "a step of a plan got what it can't take: a value that is not there, no list to go over; or an interrupted run "
        "can't go on, since its record is of something else, or is not kept",
        "Who wrote the plan: `step` and `reference` name the place. The caller of a run that was interrupted: find out "
        "by the journal what was done, and send a new request.",
    ),
    Code.ORCHESTRATION_ITERATION_LIMIT: Meaning(
        "a model goes on calling tools beyond the iterations that it has",
        "The caller: ask for less, or raise `max_iterations`, up to the operator's.",
    ),
    Code.ORCHESTRATION_NO_CONSENSUS: Meaning(
        "not as many replicas gave the same output as `consensus` wants",
        "The caller: `votes` and `lost` say who gave what; ask for less by `vote_pointer`, or for a plurality.",
    ),
    Code.CONFIG_NO_ENGINE: Meaning(
        "no inference engine is configured, or none of that name",
        "The operator: write an `[[engine]]`. The caller: name one of those that the message lists.",
    ),
    Code.CONFIG_SCHEMA_REQUIRED: Meaning(
        "structured output was asked for without a schema or grammar, or the schema can't be used",
        "The caller: give a schema; the message says what is wrong with one.",
    ),
    Code.CONFIG_GRAMMAR_NOT_FOUND: Meaning(
        "the grammar that was named is not there, or can't be read or checked",
        "The caller: mend it, or its name. The operator: add it, or install `fumehood-server[grammars]`.",
    ),
    Code.CONFIG_SANDBOX_UNAVAILABLE: Meaning(
        "this machine can't enforce the tool's sandbox; nothing ran",
        "The operator: `feature` and `remedy`, and `fumehood doctor`.",
    ),
    Code.CONFIG_PLUGIN_INVALID: Meaning(
        "the plugin can't be used as it is", "The author: `fumehood plugin check` names the fault."
    ),
    Code.CONFIG_JOURNAL_UNAVAILABLE: Meaning(
        "the call could not be recorded, so nothing ran",
        "The operator: free the disk or bring back the database. It recovers by itself.",
        Retry.YES,
    ),
    Code.CANCELLED_TIMEOUT: Meaning(
        "the caller's gRPC deadline passed", "The caller: allow more time.", Retry.IF_REPEATABLE
    ),
    Code.CANCELLED_SIGNAL: Meaning(
        "the caller cancelled it, or the sidecar was shut down",
        "The caller: retry after a shutdown, elsewhere or later.",
        Retry.IF_REPEATABLE,
    ),
}
