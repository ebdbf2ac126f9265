"""What a server asks of its client in the middle of a call, and the sidecar answers: questions and inferences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fumehood_sdk.adapters.mcp import elicitation, sampling
from fumehood_sdk.adapters.mcp.client_requests import MAX_SHOWN_REQUESTS, RefusedInput, shown_request
from fumehood_sdk.json_text import dumps
from fumehood_sdk.wire import plugin_frames, plugin_requests
from fumehood_sdk.wire.sidecar_answers import Answer, InferenceAnswer, QuestionAnswer

Given = Callable[["bytes | RefusedInput"], None]
"""Takes the result as JSON, or why there is none."""


class Inputs:
    """The requests that wait for the sidecar's answers. For one thread."""

    __slots__ = ("_last", "_send", "_waiting")

    def __init__(self, send: Callable[[bytes], None]) -> None:
        """`send` takes a frame for the sidecar."""
        self._send = send
        self._last: dict[int, int] = {}
        """The last number of each call's requests."""
        self._waiting: dict[int, dict[int, Given]] = {}
        """By call and number."""

    def ask(self, invocation_id: int, method: str, params: object, given: Given, name: str = "") -> None:
        """Ask for `elicitation/create` or `sampling/createMessage`, in a call that is under way.

        `name` is the server's for it, among those of its `input_required` result.
        """
        number = self._last[invocation_id] = self._last.get(invocation_id, 0) + 1
        asked: Mapping[str, Any] = params if isinstance(params, dict) else {}
        try:
            if method == "elicitation/create":
                tag, body = plugin_requests.QUESTION, elicitation.encode(invocation_id, number, asked, name)
            else:
                tag, body = plugin_requests.INFERENCE_REQUEST, sampling.encode(invocation_id, number, asked)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:  # whatever a server makes of it
            given(RefusedInput("invalid", str(error)))
            return
        self._waiting.setdefault(invocation_id, {})[number] = given
        self._send(plugin_frames.delimited_frame(tag, body))

    def take(self, answer: Answer) -> None:
        """Hand on an answer of the sidecar's. One that nobody waits for any more is left."""
        given = self._waiting.get(answer.invocation_id, {}).pop(answer.request_id, None)
        if given is None:
            return
        if isinstance(answer, QuestionAnswer):
            given(elicitation.result(answer))
        elif isinstance(answer, InferenceAnswer):
            given(sampling.result(answer))

    def forget(self, invocation_id: int) -> None:
        """The call is over, and what it asked for with it."""
        self._last.pop(invocation_id, None)
        for given in self._waiting.pop(invocation_id, {}).values():
            given(RefusedInput("call_ended", "the call that it was asked for has ended"))


class InputRound:
    """The answers to one `input_required` result (2026-07-28), until there are all of them."""

    __slots__ = ("_answers", "_left", "_state", "refused")

    def __init__(self, result: Mapping[str, Any]) -> None:
        """None is there."""
        self._answers: list[bytes] = []
        self._left = len(result.get("inputRequests") or {})
        self._state = result.get("requestState")
        self.refused: list[dict[str, Any]] = []
        """Those that have none, as they are shown."""

    @property
    def is_over(self) -> bool:
        """Whether each is answered or refused."""
        return self._left == 0

    def take(self, name: str, request: Mapping[str, Any], answer: bytes | RefusedInput) -> None:
        """One is."""
        self._left -= 1
        if isinstance(answer, RefusedInput):
            if len(self.refused) < MAX_SHOWN_REQUESTS:
                self.refused.append(shown_request(str(request.get("method")), request.get("params"), answer))
            return
        self._answers.append(b"%b:%b" % (dumps(name), answer))

    def fields(self) -> bytes:
        """Members of the request's parameters that it goes on with, each before a comma."""
        state = b'"requestState":%b,' % dumps(self._state) if isinstance(self._state, str) else b""
        return b'"inputResponses":{%b},' % b",".join(self._answers) + state
