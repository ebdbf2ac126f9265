"""What a server asks of its client and does not get (elicitation, sampling): named, refused, told to the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fumehood_sdk.json_text import dumps
from fumehood_sdk.wire.plugin_frames import MAX_FAILURE_CHARACTERS, Failure

CLIENT_FEATURES = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
}
"""What a server may ask of a client that has it."""
MAX_SHOWN_REQUESTS = 8
"""Of one call."""
MAX_METHOD_CHARACTERS = 80
MAX_TEXT_CHARACTERS = 2048
MAX_SCHEMA_BYTES = 4096


class RefusedInput:
    """Why a request of a server's has no answer."""

    __slots__ = ("problem", "reason")

    def __init__(self, reason: str, problem: str) -> None:
        """`reason` is a stable word, `problem` one sentence for people."""
        self.reason = reason
        self.problem = problem


def shown_request(method: str, params: object, refused: RefusedInput | None = None) -> dict[str, Any]:
    """A request as the details of a failure tell it: the question to a person, its form and its address, in bounds."""
    shown: dict[str, Any] = {"method": method[:MAX_METHOD_CHARACTERS]}
    given: Mapping[str, Any] = params if isinstance(params, dict) and method == "elicitation/create" else {}
    for name in ("message", "url"):
        if isinstance(given.get(name), str):
            shown[name] = given[name][:MAX_TEXT_CHARACTERS]
    schema = given.get("requestedSchema")
    if isinstance(schema, dict) and _can_be_shown(schema):
        shown["requested_schema"] = schema
    if refused is not None:
        shown["refused"] = refused.reason
        shown["problem"] = refused.problem[:MAX_TEXT_CHARACTERS]
    return shown


def _can_be_shown(schema: Mapping[str, Any]) -> bool:
    try:
        return len(dumps(schema)) <= MAX_SCHEMA_BYTES
    except (ValueError, RecursionError):  # it is nested too deeply
        return False


def refused_text(shown: Mapping[str, Any]) -> str:
    """What is said of one request, to people."""
    text = f"the tool asks its client for {CLIENT_FEATURES.get(shown['method'], 'input')}, which is refused"
    text = f"{text}: {shown['problem']}" if shown.get("problem") else text
    return f"{text}. It asks: {shown['message']}" if shown.get("message") else text


def refusal(requests: Sequence[Mapping[str, Any]], said: str = "") -> Failure:
    """The outcome of a call that came to nothing for what it asked. `said` is what its server said at its end."""
    known = next((each for each in requests if each["method"] in CLIENT_FEATURES), None)
    text = refused_text(known or {"method": ""})
    text = f"{text}; it ended with: {said}" if said else text
    reason = f"{CLIENT_FEATURES[known['method']] if known else 'input'}_refused"
    return Failure(text[:MAX_FAILURE_CHARACTERS], reason, details_json=dumps({"requests": [*requests]}))
