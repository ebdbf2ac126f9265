"""What a reader of a bundle might take for proven, and is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fumehood_evidence.bundle import Bundle
from fumehood_evidence.note import Signature


@dataclass(slots=True)
class PayloadCounts:
    """How many arguments and results a bundle has, and why it lacks others."""

    kept: int = 0
    digests: int = 0
    """By policy only their digests were recorded."""
    removed: int = 0
    """They were recorded, and are not kept any more."""
    nothing: int = 0
    """Calls of which by policy nothing was recorded."""


def not_proven(
    bundle: Bundle,
    bodies: Sequence[Mapping[str, Any]],
    signatures: Sequence[Signature],
    payloads: PayloadCounts,
    *,
    absent: Sequence[str],
    all_ended: bool,
) -> tuple[str, ...]:
    """Each as words to follow "not proven". `absent`: documents that are named and not there."""
    said = ["that the clock of the sidecar's machine was right"]
    if "run_id" in bundle.subject:
        said.append("that the run had no other calls: each call here is whole")
    if not any(each.time is not None for each in signatures):
        said.append("that the log showed everybody the same: no witness cosigned this checkpoint")
    if payloads.removed:
        why = "they were recorded, and are not kept any more"
        said.append(f"what {payloads.removed} arguments or results were: their digests are here, {why}")
    if payloads.digests:
        why = "by the operator's policy they were not recorded"
        said.append(f"what {payloads.digests} arguments or results were: their digests are here, {why}")
    if payloads.nothing:
        said.append(f"what {payloads.nothing} calls were given and returned: by policy nothing of it was recorded")
    said += _taken_on_trust(bodies)
    if absent:
        names = ", ".join(absent)
        said.append(f"what these documents say, which the events name and the file does not have: {names}")
    if not all_ended:
        said.append("how a call ended that had not ended yet")
    return tuple(said)


def _taken_on_trust(bodies: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the events only repeat: outcomes of another run, and what tools said of the world."""
    said = []
    served = sum(body.get("type") == "outcome_served" for body in bodies)
    if served:
        said.append(
            f"what {served} outcomes were that this run was given from the record of an earlier one: nothing ran for "
            "them here, and a file of evidence of each `source_call_id` shows them"
        )
    granted_with = sorted(
        {str(body["data"].get("granted_with")) for body in bodies if body.get("type") == "standing_approval_used"}
    )
    if granted_with:
        said.append(
            "who gave the standing approvals that let calls begin, and on what terms: a file of evidence of each of "
            f"these calls shows it: {', '.join(granted_with)}"
        )
    taken = [body["data"] for body in bodies if body.get("type") == "execute_values"]
    if taken:
        said.append("that what tools took from outside was so: their own processes said it, and it is recorded as said")
    unconfirmed = sum(number for data in taken if isinstance(number := data.get("unconfirmed"), int))
    if unconfirmed:
        said.append(f"that {unconfirmed} HTTP responses were as tools said: the sidecar gave them no such response")
    return said
