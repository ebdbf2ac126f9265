"""Verdicts as the validator's process sends them."""

from __future__ import annotations

import pytest
from fumehood_server.model.coercion import Coercion
from fumehood_server.validation.documents import Accepted, Flaw, Rejected
from fumehood_server.validation.wire import ANSWER_HEAD, BrokenAnswerError, decode_verdict, encode_verdict

from tests.calls.test_validator_process import SMALL


@pytest.mark.parametrize(
    ("status", "body"),
    [(9, b""), (0, b"x"), (1, b"\xff"), (2, b""), (2, b"[" * 60_000), (2, b"[1]"), (2, b'[9,"",[]]'), (2, b"[1,2,[]]"),
     (2, b'[1,"",[{"pointer":"","rule":"","message":1}]]'), (2, b'[1,"",[{"pointer":""}]]'), (2, b'[1,"",["x"]]')],
)  # fmt: skip
def test_an_answer_that_is_no_verdict_is_refused(status: int, body: bytes) -> None:
    with pytest.raises(BrokenAnswerError):
        decode_verdict(SMALL, status, body)


def test_a_verdict_comes_as_it_was_sent() -> None:
    fault = {"pointer": "/n", "rule": "type", "message": "ü"}
    mended = (Coercion("/ü", "number", '"1" was taken as 1'),)
    for each in (Accepted(SMALL.text), Accepted("other ü", "", mended), Rejected(Flaw.DOES_NOT_FIT, "why", (fault,))):
        frame = encode_verdict(SMALL, each)
        status, size = ANSWER_HEAD.unpack_from(frame)
        assert len(frame) == ANSWER_HEAD.size + size
        assert decode_verdict(SMALL, status, frame[ANSWER_HEAD.size :]) == each
