"""A request as JSON: what the journal keeps of it, and by which a repetition is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fumehood_server.orchestration.messages import messages_from_json, messages_to_json
from fumehood_server.orchestration.request import (
    Budget,
    Consensus,
    Hints,
    Mode,
    OutputContract,
    PlanPolicy,
    Rule,
    SystemRequest,
)

_NOT_ASKED = ("request_id", "is_named", "context", "trace", "caller", "caller_deadline", "continues", "timeout_s")
"""Who asks, by which way and for how long: the same request may come again by another."""


def request_to_json(request: SystemRequest) -> dict[str, Any]:
    """All that decides what is done."""
    found = {name: value for name, value in _fields(request).items() if name not in _NOT_ASKED}
    for name in ("hints", "output", "budget", "plan_policy"):
        found[name] = _fields(found[name])
    found["messages"] = messages_to_json(request.messages)
    found["output"]["rules"] = [_fields(each) for each in request.output.rules]
    found["allowed_tools"] = None if request.allowed_tools is None else sorted(request.allowed_tools)
    found["plan_policy"]["allowed_step_kinds"] = sorted(request.plan_policy.allowed_step_kinds)
    return found


def _fields(value: SystemRequest | Hints | OutputContract | Budget | PlanPolicy | Rule) -> dict[str, Any]:
    """Without copies, as `asdict` makes them: a schema takes it tens of milliseconds."""
    return {each.name: getattr(value, each.name) for each in fields(value)}


def request_from_json(asked: Mapping[str, Any], request_id: str, session_id: str) -> SystemRequest:
    """What `request_to_json` wrote, for a replay: nobody asks it.

    Raises:
        KeyError, TypeError, ValueError: it did not write that.
    """
    output, policy = dict(asked["output"]), dict(asked["plan_policy"])
    output["rules"] = tuple(Rule(**{**each, "one_of": tuple(each["one_of"])}) for each in output["rules"])
    policy["allowed_step_kinds"] = frozenset(policy["allowed_step_kinds"])
    allowed = asked["allowed_tools"]
    found = {
        **asked,
        "request_id": request_id,
        "is_named": True,
        "session_id": session_id,
        "messages": messages_from_json(asked["messages"]),
        "mode": Mode(asked["mode"]),
        "hints": Hints(**asked["hints"]),
        "output": OutputContract(**output),
        "allowed_tools": None if allowed is None else frozenset(allowed),
        "budget": Budget(**asked["budget"]),
        "consensus": Consensus(asked["consensus"]),
        "plan_policy": PlanPolicy(**policy),
    }
    return SystemRequest(**found)
