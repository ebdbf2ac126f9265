"""A witness that cosigns checkpoints of logs that only grow (C2SP tlog-witness), by HTTP."""

from __future__ import annotations

import base64
import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass

from fumehood_evidence.checkpoint import Checkpoint
from fumehood_evidence.errors import NoteError
from fumehood_evidence.note import MAX_NOTE_BYTES, Verifier, opened

from fumehood_server.journal.handover.place import PlaceError
from fumehood_server.journal.handover.prove import Prove
from fumehood_server.journal.store import StoreError

TIMEOUT_S = 20.0
_CONFLICT = 409
_SIZE_DIGITS = 19
_TRIES = 2
"""A witness that has seen another size than we believe says which, once."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: str


class WitnessPlace:
    """Adds each checkpoint by `add-checkpoint`, with the proof that the log has only grown since the last one."""

    def __init__(self, url: str, witness: Verifier, log: Verifier, prove: Prove) -> None:
        """`witness` is its public key, `log` the key that signs the notes."""
        self.name = f"the witness {witness.name}"
        self._url = url.rstrip("/") + "/add-checkpoint"
        self._witness = witness
        self._log = log
        self._prove = prove
        self._known = 0
        """The size that the witness cosigned last, as far as is known here."""

    def take(self, note: str) -> str:
        """See `Place`. Returns the cosigned note."""
        size = Checkpoint.parse(opened(note, [self._log]).text).size
        for _ in range(_TRIES):
            answer = self._send(note, size)
            if answer.status != _CONFLICT:
                break
            self._known = _size_of(answer.body, size)
        if answer.status != http.client.OK:
            raise PlaceError(f"it answered {answer.status}: {answer.body[:200].strip()}")
        cosigned = note + answer.body
        try:
            names = {each.name for each in opened(cosigned, [self._log, self._witness]).signatures}
        except NoteError as exc:
            raise PlaceError(f"its cosignature does not hold: {exc}") from exc
        if self._witness.name not in names:
            raise PlaceError("it answered without a cosignature by its key")
        self._known = size
        return cosigned

    def _send(self, note: str, size: int) -> _Answer:
        try:
            proof = self._prove(self._known, size)
        except (StoreError, ValueError) as exc:
            raise PlaceError(f"the log's proof can't be made: {exc}") from exc
        lines = [f"old {self._known}", *(base64.b64encode(each).decode() for each in proof), "", note]
        request = urllib.request.Request(self._url, "\n".join(lines).encode(), method="POST")  # noqa: S310 - http(s), by the configuration
        try:
            with _OPENER.open(request, timeout=TIMEOUT_S) as response:
                return _Answer(response.status, _text(response.read(MAX_NOTE_BYTES)))
        except urllib.error.HTTPError as exc:
            with exc:
                return _Answer(exc.code, _text(exc.read(MAX_NOTE_BYTES)))
        except (OSError, http.client.HTTPException) as exc:
            reason = exc.reason if isinstance(exc, urllib.error.URLError) else exc
            raise PlaceError(f"it can't be reached: {reason}") from exc


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A witness is where the operator says and nowhere else."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler({}))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _size_of(body: str, size: int) -> int:
    text = body.strip()
    if not text.isascii() or not text.isdigit() or len(text) > _SIZE_DIGITS or int(text) > size:
        raise PlaceError(
            f"it has seen another log of this name: it knows a size of {text[:40]}, and this one has {size}"
        )
    return int(text)
