"""What a run answers fits the message of 4 MiB that gRPC clients accept by default."""

from __future__ import annotations

from dataclasses import replace

from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.context import ModeResult
from fumehood_server.orchestration.failures import failed

MAX_RESULT_BYTES = 3 * 1024 * 1024
"""Of content, output and trace together. Calls and the error have bounds of their own."""
_MOST_BYTES_A_CHARACTER = 4


def within_bounds(result: ModeResult) -> ModeResult:
    """The result, without the text that the output was read from where both are too long.

    Raises:
        RunFailedError: it is too long all the same.
    """
    size = _size(result)
    if size > MAX_RESULT_BYTES and result.output_json:
        result = replace(result, content="")
        size = _size(result)
    if size <= MAX_RESULT_BYTES:
        return result
    text = f"what the run came to has {size:,} bytes, and {MAX_RESULT_BYTES:,} can be answered: ask for less at a time"
    raise failed(Code.INFERENCE_MALFORMED_RESPONSE, text, details={"reason": "response_too_large", "size": size})


def _size(result: ModeResult) -> int:
    """In UTF-8, or at most so much where that is little anyway."""
    parts = (result.content, result.output_json, result.plan_trace_json)
    most = sum(map(len, parts)) * _MOST_BYTES_A_CHARACTER
    return most if most <= MAX_RESULT_BYTES else sum(len(each.encode(errors="surrogatepass")) for each in parts)


__all__ = ["MAX_RESULT_BYTES", "within_bounds"]
