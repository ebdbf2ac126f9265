# ruff: noqa: PLR2004 - the numbers are the tags of fields, as in `sidecar_frames`
"""Decodes the sidecar's answers to requests of calls, such as `HttpResponse` and `SecretResponse`."""

from __future__ import annotations

from collections.abc import Callable

from fumehood_sdk.wire import varint
from fumehood_sdk.wire.fields import decode_text, skip_field, value_span


class Answer:
    """An answer to a request of a call, or a part of one."""

    __slots__ = ("invocation_id", "request_id")

    def __init__(self) -> None:
        self.invocation_id = 0
        self.request_id = 0


class HttpProblem:
    """Why a request was refused or failed."""

    __slots__ = ("message", "reason", "retryable")

    def __init__(self) -> None:
        self.reason = ""
        self.message = ""
        self.retryable = False


class HttpHead(Answer):
    """Status and headers of a response, or why there are none."""

    __slots__ = ("headers", "problem", "redirects", "status", "url")

    def __init__(self) -> None:
        super().__init__()
        self.status = 0
        self.url = ""
        self.headers: list[tuple[str, str]] = []
        self.redirects = 0
        self.problem: HttpProblem | None = None


class HttpPiece(Answer):
    """A part of a response's body."""

    __slots__ = ("data", "end", "problem")

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.end = False
        self.problem: HttpProblem | None = None


class SecretAnswer(Answer):
    """The value of a secret, or why there is none."""

    __slots__ = ("problem", "value")

    def __init__(self) -> None:
        super().__init__()
        self.value = b""
        self.problem = ""


class QuestionAnswer(Answer):
    """What a person says, or why nobody does: `Answer` of the wire."""

    __slots__ = ("action", "content_json", "problem", "reason")

    def __init__(self) -> None:
        super().__init__()
        self.action = 0
        self.content_json = b""
        self.reason = ""
        self.problem = ""


class InferenceAnswer(Answer):
    """What a model says, or why none does: `InferenceResponse`."""

    __slots__ = ("finish_reason", "model", "problem", "reason", "retryable", "text")

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.model = ""
        self.finish_reason = ""
        self.reason = ""
        self.problem = ""
        self.retryable = 0


def decode_http_head(data: bytes, position: int, end: int) -> HttpHead:
    """Decode an `HttpResponse`."""
    frame = HttpHead()
    while position < end:
        tag = data[position]
        if tag in (0x08, 0x10, 0x18, 0x30):
            value, position = varint.decode(data, position + 1, end)
            setattr(frame, _NUMBER_ATTRIBUTES[tag], value)
        elif tag in (0x22, 0x2A, 0x3A):
            start, position = value_span(data, position + 1, end)
            if tag == 0x22:
                frame.url = decode_text(data, start, position)
            elif tag == 0x2A:
                frame.headers.append(_decode_header(data, start, position))
            else:
                frame.problem = _decode_problem(data, start, position)
        else:
            position = skip_field(data, position, end)
    return frame


def decode_http_piece(data: bytes, position: int, end: int) -> HttpPiece:
    """Decode an `HttpBody`."""
    frame = HttpPiece()
    while position < end:
        tag = data[position]
        if tag in (0x08, 0x10, 0x20):
            value, position = varint.decode(data, position + 1, end)
            if tag == 0x20:
                frame.end = bool(value)
            else:
                setattr(frame, _NUMBER_ATTRIBUTES[tag], value)
        elif tag in (0x1A, 0x2A):
            start, position = value_span(data, position + 1, end)
            if tag == 0x1A:
                frame.data = data[start:position]
            else:
                frame.problem = _decode_problem(data, start, position)
        else:
            position = skip_field(data, position, end)
    return frame


def decode_secret_answer(data: bytes, position: int, end: int) -> SecretAnswer:
    """Decode a `SecretResponse`."""
    frame = SecretAnswer()
    while position < end:
        tag = data[position]
        if tag in (0x08, 0x10):
            value, position = varint.decode(data, position + 1, end)
            setattr(frame, _NUMBER_ATTRIBUTES[tag], value)
        elif tag in (0x1A, 0x22):
            start, position = value_span(data, position + 1, end)
            if tag == 0x1A:
                frame.value = data[start:position]
            else:
                frame.problem = decode_text(data, start, position)
        else:
            position = skip_field(data, position, end)
    return frame


def decode_question_answer(data: bytes, position: int, end: int) -> QuestionAnswer:
    """Decode an `Answer`."""
    frame = QuestionAnswer()
    while position < end:
        tag = data[position]
        if tag in (0x08, 0x10, 0x18):
            value, position = varint.decode(data, position + 1, end)
            setattr(frame, "action" if tag == 0x18 else _NUMBER_ATTRIBUTES[tag], value)
        elif tag in (0x22, 0x2A, 0x32):
            start, position = value_span(data, position + 1, end)
            if tag == 0x22:
                frame.content_json = data[start:position]
            else:
                setattr(frame, "reason" if tag == 0x2A else "problem", decode_text(data, start, position))
        else:
            position = skip_field(data, position, end)
    return frame


def decode_inference_answer(data: bytes, position: int, end: int) -> InferenceAnswer:
    """Decode an `InferenceResponse`."""
    frame = InferenceAnswer()
    while position < end:
        tag = data[position]
        if tag in (0x08, 0x10, 0x40):
            value, position = varint.decode(data, position + 1, end)
            setattr(frame, "retryable" if tag == 0x40 else _NUMBER_ATTRIBUTES[tag], value)
        elif tag in _INFERENCE_TEXTS:
            start, position = value_span(data, position + 1, end)
            setattr(frame, _INFERENCE_TEXTS[tag], decode_text(data, start, position))
        else:
            position = skip_field(data, position, end)
    return frame


ANSWER_DECODERS: dict[int, Callable[[bytes, int, int], Answer]] = {
    0x2A: decode_http_head,
    0x32: decode_http_piece,
    0x3A: decode_secret_answer,
    0x4A: decode_question_answer,
    0x52: decode_inference_answer,
}
"""By the tag of the frame in `HostFrame`."""
_INFERENCE_TEXTS = {0x1A: "text", 0x22: "model", 0x2A: "finish_reason", 0x32: "reason", 0x3A: "problem"}
_NUMBER_ATTRIBUTES = {0x08: "invocation_id", 0x10: "request_id", 0x18: "status", 0x30: "redirects"}


def _decode_header(data: bytes, position: int, end: int) -> tuple[str, str]:
    name = value = ""
    while position < end:
        tag = data[position]
        if tag in (0x0A, 0x12):
            start, position = value_span(data, position + 1, end)
            if tag == 0x0A:
                name = decode_text(data, start, position)
            else:
                value = decode_text(data, start, position)
        else:
            position = skip_field(data, position, end)
    return name, value


def _decode_problem(data: bytes, position: int, end: int) -> HttpProblem:
    problem = HttpProblem()
    while position < end:
        tag = data[position]
        if tag in (0x0A, 0x12):
            start, position = value_span(data, position + 1, end)
            if tag == 0x0A:
                problem.reason = decode_text(data, start, position)
            else:
                problem.message = decode_text(data, start, position)
        elif tag == 0x18:
            value, position = varint.decode(data, position + 1, end)
            problem.retryable = bool(value)
        else:
            position = skip_field(data, position, end)
    return problem
