"""Makes the places that the configuration names for checkpoints of the journal, and logs when one fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fumehood_server.journal.handover.command import CommandPlace
from fumehood_server.journal.handover.file import FilePlace
from fumehood_server.journal.handover.handover import Handover
from fumehood_server.telemetry import get_logger

if TYPE_CHECKING:
    from fumehood_evidence.note import Verifier

    from fumehood_server.config.config import SidecarConfig
    from fumehood_server.journal.handover.place import Place
    from fumehood_server.journal.handover.prove import Prove


def hand_over(config: SidecarConfig, log_key: Verifier, prove: Prove) -> Handover | None:
    """What takes checkpoints, signed by `log_key`, to the places. None: there are none."""
    named = config.journal.checkpoints
    places: list[Place] = []
    if named.file is not None:
        places.append(FilePlace(named.file))
    if named.command:
        places.append(CommandPlace(named.command, config.folder))
    if named.witness_key is not None:
        # It brings an HTTP client, and few name one.
        from fumehood_server.journal.handover.witness import WitnessPlace  # noqa: PLC0415

        places.append(WitnessPlace(named.witness, named.witness_key, log_key, prove))
    return Handover(places, _log, every_s=named.every_s) if places else None


def _log(place: str, problem: str | None) -> None:
    if problem is None:
        get_logger().info("checkpoints_handed_over", place=place)
    else:
        get_logger().warning("checkpoint_not_handed_over", place=place, message=problem)
