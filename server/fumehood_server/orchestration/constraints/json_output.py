"""JSON from a model's text, and what of it does not fit the schema."""

from __future__ import annotations

from fumehood_server.calls.documents import DocumentChecks, NoVerdictError
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.constraints.contract import Contract, verdict_of
from fumehood_server.orchestration.constraints.faults import OutputFault, of_schema, unchecked
from fumehood_server.orchestration.failures import failed
from fumehood_server.validation.documents import Document, Flaw, Kind, Rejected

_MAX_TOLD_CHARS = 300

Made = tuple[str, tuple[OutputFault, ...]]
"""JSON (empty: there is none), and its faults."""


async def read_json(text: str, contract: Contract, checks: DocumentChecks, *, cut_off: bool) -> Made:
    """The JSON of a text.

    Text that is JSON and fits is taken as it is. All else is mended where the contract allows it: taken out of a code
    fence or of the text around it, repaired, enumerations recognised. `cut_off`: the model was stopped in the middle;
    then nothing is mended, since the end of a list that nobody wrote would be taken for its end.

    Raises:
        RunFailedError: the schema can't be used.
    """
    rejected = await _rejection(text, contract, checks)
    if rejected is None:
        return text, ()
    if not contract.asked.repair_allowed or cut_off:
        return _at_fault(text, rejected, contract, cut_off=cut_off)
    document = Document(Kind.MODEL_JSON, contract.schema_digest, contract.schema_json, text)
    try:
        mended = await verdict_of(checks, contract.key, document)
    except NoVerdictError as exc:
        if isinstance(rejected, Rejected) and rejected.flaw is Flaw.NOT_JSON:
            return "", (unchecked(Code.CONSTRAINT_JSON_INVALID, "json", exc),)
        mended = Rejected(Flaw.NOT_JSON)
    if isinstance(mended, Rejected):
        return _at_fault(text, rejected, contract, cut_off=False)
    rejected = await _rejection(mended.text, contract, checks)
    if rejected is None:
        return mended.text, ()
    return _at_fault(mended.text, rejected, contract, cut_off=False)


async def _rejection(text: str, contract: Contract, checks: DocumentChecks) -> Rejected | OutputFault | None:
    """Why a text as it stands is not what the schema wants. None: it is."""
    document = Document(Kind.OUTPUT, contract.schema_digest, contract.schema_json, text)
    try:
        verdict = await verdict_of(checks, contract.key, document)
    except NoVerdictError as exc:
        return unchecked(Code.CONSTRAINT_SCHEMA_INVALID, "schema", exc)
    return verdict if isinstance(verdict, Rejected) else None


def _at_fault(text: str, rejected: Rejected | OutputFault, contract: Contract, *, cut_off: bool) -> Made:
    """What there is of JSON, and its faults."""
    if isinstance(rejected, OutputFault):
        return "", (rejected,)
    if rejected.flaw is Flaw.SCHEMA_UNUSABLE:
        raise failed(Code.CONFIG_SCHEMA_REQUIRED, f"the schema can't be used: {rejected.problem}")
    if rejected.flaw is Flaw.DOES_NOT_FIT:
        return text, of_schema(rejected.faults)
    if cut_off:
        message = "it ends in the middle, since the answer has as many tokens as it may have"
        return "", (OutputFault(Code.CONSTRAINT_JSON_INVALID, "", "json", message),)
    if contract.is_enum:
        return "", (OutputFault(Code.CONSTRAINT_ENUM_UNRECOGNIZED, "", "enum", _not_named(contract)),)
    return "", (OutputFault(Code.CONSTRAINT_JSON_INVALID, "", "json", f"the answer {_capped(rejected.problem)}"),)


def _not_named(contract: Contract) -> str:
    return f"it is none of the values, as JSON, that {_capped(contract.schema_json)} allows"


def _capped(text: str) -> str:
    return text if len(text) <= _MAX_TOLD_CHARS else f"{text[:_MAX_TOLD_CHARS]}…"
