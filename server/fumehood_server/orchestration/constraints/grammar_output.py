"""Text under a grammar: held against it on the way back, whoever constrained the decoding."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from fumehood_server.calls.documents import DocumentChecks, NoVerdictError
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.constraints.contract import Contract, verdict_of
from fumehood_server.orchestration.constraints.faults import OutputFault, unchecked
from fumehood_server.orchestration.constraints.json_output import Made
from fumehood_server.orchestration.failures import failed
from fumehood_server.validation.documents import Accepted, Document, Flaw, Kind, Rejected
from fumehood_server.validation.model_text.json_in_text import fenced

_MAX_TRIED = 4


async def read_text(text: str, contract: Contract, checks: DocumentChecks) -> Made:
    """The text that follows the contract's grammar, as JSON: an object or array that it is, else a string.

    Where mending is allowed, white space and a code fence around it are left out.

    Raises:
        RunFailedError: the grammar can't be used.
    """
    fault: OutputFault | None = None
    for tried in _candidates(text, repair_allowed=contract.asked.repair_allowed):
        found = await _fault(tried, contract, checks)
        if found is None:
            return await as_json(tried, contract, checks), ()
        fault = fault or found
    if fault is None:
        raise AssertionError("the text as it stands is tried in any case")
    return await as_json(text, contract, checks), (fault,)


async def as_json(text: str, contract: Contract, checks: DocumentChecks) -> str:
    """A text's object or array, or the text as a JSON string."""
    if text.lstrip()[:1] in {"{", "["}:
        try:
            if isinstance(await verdict_of(checks, contract.key, Document(Kind.OUTPUT, "", "", text)), Accepted):
                return text
        except NoVerdictError:
            pass
    return json.dumps(text, ensure_ascii=False)


async def _fault(text: str, contract: Contract, checks: DocumentChecks) -> OutputFault | None:
    grammar = contract.asked.grammar
    digest = hashlib.sha256(grammar.encode(errors="surrogatepass")).hexdigest()
    try:
        verdict = await verdict_of(checks, contract.key, Document(Kind.MODEL_TEXT, digest, grammar, text))
    except NoVerdictError as exc:
        return unchecked(Code.CONSTRAINT_GRAMMAR_REJECTED, "grammar", exc)
    if not isinstance(verdict, Rejected):
        return None
    if verdict.flaw is Flaw.SCHEMA_UNUSABLE:
        raise failed(Code.CONFIG_GRAMMAR_NOT_FOUND, f"the grammar {verdict.problem}")
    message = verdict.faults[0]["message"] if verdict.faults else verdict.problem
    return OutputFault(Code.CONSTRAINT_GRAMMAR_REJECTED, "", "grammar", message)


def _candidates(text: str, *, repair_allowed: bool) -> Iterator[str]:
    yield text
    if not repair_allowed:
        return
    stripped = text.strip()
    if stripped != text:
        yield stripped
    for number, found in enumerate(fenced(text), start=1):
        yield found
        if number == _MAX_TRIED:
            return
