"""Who carries out the runs of a batch: of several sidecars, one each.

A run is its that has recorded its start, or last that it goes on, which only follows the death of the one before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from fumehood_server.journal.entry import RunClaim, RunStep

OTHERS_RUN = "another sidecar carries out the run, or has ended it"
NO_OWNER = ""
"""In the place of the owner of a run that has ended."""

NEWEST = """
    SELECT type, body FROM events WHERE subject = %s AND subject <> '' AND type <> 'execute_start'
        AND type <> 'execute_end' AND type <> 'execute_cancelled'
        AND type IN ('run_started', 'run_resumed', 'run_ended') ORDER BY position DESC LIMIT 1
    """
"""The event that says whose a run is."""
END_TYPE = "run_ended"


@dataclass(slots=True)
class RunOwners:
    """The owners as they are recorded, or will be by this batch."""

    owners: dict[str, str] = field(default_factory=dict)
    """By run. Absent: nothing is recorded of it."""
    dead: Collection[str] = ()
    """Owners who can't come back before this batch is written."""

    def claim(self, claim: RunClaim, sidecar: str) -> str:
        """Have the run be the sidecar's, or ended by it; or say why not."""
        owner = self.owners.get(claim.run_id)
        match claim.step:
            case RunStep.START:
                holds = owner is None
            case RunStep.RESUME:
                holds = owner == claim.owner and (owner == sidecar or owner in self.dead)
            case RunStep.END:
                holds = owner is None or owner == sidecar  # its start may have been removed: retention
        if not holds:
            return OTHERS_RUN
        self.owners[claim.run_id] = NO_OWNER if claim.step is RunStep.END else sidecar
        return ""


__all__ = ["END_TYPE", "NEWEST", "NO_OWNER", "OTHERS_RUN", "RunOwners"]
