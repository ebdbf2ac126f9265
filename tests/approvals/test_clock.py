"""Setting the machine's clock back while no sidecar runs gives an approval no more time."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path

import pytest
from fumehood.v1 import approval_service_pb2 as apb
from fumehood_server.journal import JOURNAL_NAME
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.sqlite import SqliteStore
from fumehood_server.model.events import NOBODY, SidecarStopped

from .support import Place, client_of

HOUR_S = 3600


@pytest.mark.parametrize(("later_s", "state"), [(0, apb.APPROVAL_STATE_PENDING), (HOUR_S, apb.APPROVAL_STATE_EXPIRED)])
async def test_what_was_recorded_later_than_the_clock_says_is_past(
    later_s: int, state: apb.ApprovalState.ValueType
) -> None:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        place = Place(folder)
        with place.sidecar() as sidecar:
            async with client_of(sidecar) as client:
                approval = await client.asked(place.call("waits", "waits", at_once=True))
        _run_until(folder, time.time() + later_s)
        with place.sidecar() as sidecar:
            async with client_of(sidecar) as client:
                await client.until(approval.approval_id, state)


def _run_until(folder: Path, end: float) -> None:
    """As if a sidecar had run there until then."""
    with contextlib.closing(SqliteStore(folder / ".fumehood" / JOURNAL_NAME)) as store:
        store.write([encode(SidecarStopped(), NOBODY, time_us=round(end * 1e6), sidecar="0a")])
