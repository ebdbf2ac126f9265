"""What events of runs of models say, in a few words for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def run_event_text(kind: str, data: Mapping[str, Any]) -> str:
    """What an event says beside its type and its run. Empty: it is of another kind."""
    match kind:
        case "run_started":
            return f"mode {data['mode']}, {data['engine'] or 'no engine'}"
        case "run_resumed":
            return f"goes on with {_plural(data['inferences'], 'answer')} on record"
        case "lifecycle_transition":
            return _told(f"{data['from_state']} → {data['to_state']}", data["reason"])
        case "run_ended":
            return run_ended_text(data)
        case "session_turn":
            return f"run {data['run']} is kept in its session"
        case _:
            return _of_inference(kind, data) or _of_steering(kind, data)


def run_ended_text(data: Mapping[str, Any]) -> str:
    """How a run ended, and what it has used, by the data of its end."""
    used = [_plural(data["inferences"], "inference"), _plural(data["tool_calls"], "tool call"), _tokens(data)]
    return ", ".join((" ".join(filter(None, (data["state"], data["error_code"]))), *used, *_cost(data)))


def answer_text(data: Mapping[str, Any]) -> str:
    """What came of an inference, by the data of its end."""
    if data["error_code"]:
        return f"{data['error_code']}{'' if data['is_last'] else ', asked again'}"
    calls = [_plural(data["tool_call_count"], "tool call")] if data["tool_call_count"] else []
    return ", ".join((data["finish_reason"], *calls, _tokens(data), *_cost(data), *filter(None, (data["model"],))))


def _of_inference(kind: str, data: Mapping[str, Any]) -> str:
    match kind:
        case "inference_start" | "call_inference_start":
            asked = [_plural(data["message_count"], "message"), _plural(data["tool_defs_count"], "tool")]
            again = [f"attempt {data['attempt']}"] if data["attempt"] > 1 else []
            return f"{data['name']} asks {data['engine']}: {', '.join((*asked, *again))}"
        case "inference_end" | "call_inference_end":
            return f"{data['name']}: {answer_text(data)}"
        case "run_tool_refused":
            return f"{data['tool']} was not called for {data['inference']}: {data['reason']}"
        case _:
            return ""


def _of_steering(kind: str, data: Mapping[str, Any]) -> str:
    match kind:
        case "run_steered":
            return f"{data['kind']} {data['number']} by {data['caller']}"
        case "run_steering_taken":
            return f"{', '.join(map(str, data['numbers']))} told to {data['name']}"
        case _:
            return ""


def _tokens(data: Mapping[str, Any]) -> str:
    return f"{data['tokens_in']:,} + {data['tokens_out']:,} tokens"


def _cost(data: Mapping[str, Any]) -> list[str]:
    return [f"costs {data['cost']:.4g}"] if data["cost"] else []


def _plural(number: int, noun: str) -> str:
    from fumehood_server.cli.output import plural

    return plural(number, noun)


def _told(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what
