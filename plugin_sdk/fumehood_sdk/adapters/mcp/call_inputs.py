"""What servers ask for in the middle of calls: by `input_required` results (2026-07-28), by requests before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fumehood_sdk.adapters.mcp.calls import Calls, McpCall
from fumehood_sdk.adapters.mcp.client_requests import (
    MAX_SHOWN_REQUESTS,
    RefusedInput,
    refusal,
    refused_text,
    shown_request,
)
from fumehood_sdk.adapters.mcp.connection import Respond
from fumehood_sdk.adapters.mcp.inputs import InputRound, Inputs
from fumehood_sdk.adapters.mcp.messages import Message, problem_of
from fumehood_sdk.adapters.mcp.progress import update_frame
from fumehood_sdk.wire.plugin_frames import Failure
from fumehood_sdk.wire.sidecar_answers import Answer


class CallInputs:
    """Asks the sidecar for what the server asks of its client, each for its call. For one thread."""

    __slots__ = ("_calls", "_ended_rounds", "_inputs", "_roots", "_send")

    def __init__(self, calls: Calls, roots: str, send: Callable[[bytes], None]) -> None:
        """`roots` is the result of `roots/list` as JSON. `send` takes a frame for the sidecar."""
        self._calls = calls
        self._roots = roots
        self._send = send
        self._inputs = Inputs(send)
        self._ended_rounds: list[tuple[McpCall, bytes | Failure]] = []

    def take_answer(self, answer: Answer) -> None:
        """Hand on an answer of the sidecar's."""
        self._inputs.take(answer)

    def forget(self, call: McpCall) -> None:
        """The call is over, and what it asked for with it."""
        self._inputs.forget(call.invocation_id)

    def take_request(self, message: Message, respond: Respond) -> None:
        """Have a request of the server's answered for the call that it is for."""
        call = self._calls.asker(message)
        if isinstance(call, RefusedInput):
            respond(call)
            return
        if (problem := problem_of(message)) is not None:  # its parameters can't be told to anybody
            self._respond(call, {"method": message["method"]}, respond, RefusedInput("invalid", problem))
            return
        given = partial(self._respond, call, message, respond)
        self._inputs.ask(call.invocation_id, message["method"], message.get("params"), given)

    def begin_round(self, call: McpCall, wanted: Mapping[str, Any]) -> None:
        """Have everything answered that a result asks for. `take_ended_rounds` has the call once that is done."""
        current = InputRound(wanted)
        for name, request in (wanted.get("inputRequests") or {}).items():
            given = partial(self._take_input, call, current, name, request)
            if request["method"] == "roots/list":
                given(self._roots.encode())
            else:
                self._inputs.ask(call.invocation_id, request["method"], request.get("params"), given, name)
        if not wanted.get("inputRequests"):
            self._ended_rounds.append((call, current.fields()))

    def take_ended_rounds(self) -> list[tuple[McpCall, bytes | Failure]]:
        """The calls that wait no more, each with members of the parameters that it goes on with, or with its end."""
        ended, self._ended_rounds = self._ended_rounds, []
        return [each for each in ended if each[0] in self._calls]  # a call may be cancelled right after its last answer

    def _respond(self, call: McpCall, message: Message, respond: Respond, answer: bytes | RefusedInput) -> None:
        if isinstance(answer, RefusedInput) and len(call.asked) < MAX_SHOWN_REQUESTS:
            call.asked.append(shown_request(message["method"], message.get("params"), answer))
            if call in self._calls:
                self._send(update_frame(call, refused_text(call.asked[-1])))
        respond(answer)

    def _take_input(
        self, call: McpCall, current: InputRound, name: str, request: Message, answer: bytes | RefusedInput
    ) -> None:
        current.take(name, request, answer)
        if current.is_over and call in self._calls:
            going_on = refusal(current.refused) if current.refused else current.fields()
            self._ended_rounds.append((call, going_on))
