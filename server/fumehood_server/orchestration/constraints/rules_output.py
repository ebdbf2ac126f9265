"""The contract's rules over an output."""

from __future__ import annotations

import hashlib

from fumehood_server.calls.documents import DocumentChecks, NoVerdictError
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.constraints.contract import Contract, verdict_of
from fumehood_server.orchestration.constraints.faults import OutputFault, unchecked
from fumehood_server.validation.documents import Document, Kind, Rejected


async def broken_rules(output_json: str, contract: Contract, checks: DocumentChecks) -> tuple[OutputFault, ...]:
    """A fault for each rule that the output breaks. A rule about a value that is not there is broken."""
    if not contract.rules_json:
        return ()
    digest = hashlib.sha256(contract.rules_json.encode(errors="surrogatepass")).hexdigest()
    try:
        verdict = await verdict_of(checks, contract.key, Document(Kind.RULED, digest, contract.rules_json, output_json))
    except NoVerdictError as exc:
        return (unchecked(Code.VALIDATION_RULE_FAILED, "rules", exc),)
    if not isinstance(verdict, Rejected):
        return ()
    if not verdict.faults:
        return (OutputFault(Code.VALIDATION_RULE_FAILED, "", "rules", verdict.problem),)
    return tuple(
        OutputFault(
            Code.VALIDATION_RULE_FAILED,
            each["pointer"],
            each["rule"],
            f'{each["message"]} (rule "{each["rule"]}")',
        )
        for each in verdict.faults
    )
