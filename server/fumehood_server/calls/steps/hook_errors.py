"""The errors of calls that a hook or middleware ends, and who must act."""

from __future__ import annotations

from dataclasses import replace

from fumehood_server.model.call import CallError
from fumehood_server.model.hooks import MAX_REASON_BYTES, Gone, HookKind, HookTurn, Stage
from fumehood_server.model.taxonomy import Code

_WORDS = {
    Gone.NOT_CONNECTED: "is not connected",
    Gone.TIMEOUT: "did not answer in time",
    Gone.DISCONNECTED: "went away while it was asked",
    Gone.FAILED: "failed, as the sidecar's log says",
}


def denied(turn: HookTurn, stage: Stage, tool: str, reason: str) -> CallError:
    """It said no."""
    reason = _cut(reason)
    said = f" Reason: {reason}" if reason else ""
    what = (
        f"does not allow this call of {tool}, which did not run"
        if stage is Stage.BEFORE
        else f"withholds the result of {tool}, which has run"
    )
    return CallError(
        code=Code.TOOL_DENIED,
        message=f"{_named(turn)} {what}.{said} Go on without it.",
        details={**_details(turn, stage, "hook_denied"), "note": reason},
    )


def gone(turn: HookTurn, stage: Stage, tool: str, problem: Gone) -> CallError:
    """There is no answer, and without one the call may not go on."""
    what = (
        f"so that {tool} did not run. Call again later"
        if stage is Stage.BEFORE
        else f"so that the result of {tool}, which has run, is withheld"
    )
    who = "whoever runs it must see to it" if turn.kind is HookKind.HOOK else "the sidecar's operator must see to it"
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f"{_named(turn)}, which the operator has decide about it, {_WORDS[problem]}, {what}; {who}.",
        retryable=stage is Stage.BEFORE,
        details={**_details(turn, stage, "hook_gone"), "problem": problem.value},
    )


def unusable(turn: HookTurn, stage: Stage, tool: str, error: CallError) -> CallError:
    """What it changed can't be used. Neither the model nor the tool's author can mend that."""
    what = f"{tool} did not run" if stage is Stage.BEFORE else f"{tool} has run, and its result is withheld"
    details = {key: value for key, value in error.details.items() if key in _KEPT}
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f"{_named(turn)} changed it into what can't be used, so that {what}. Its author must mend it: "
        + error.message.removesuffix(" Mend them and call again."),
        details={**details, **_details(turn, stage, "hook_failed")},
    )


_KEPT = frozenset({"arguments", "output", "limit", "value", "usage", "unit"})


def not_permitted(turn: HookTurn, error: CallError) -> CallError:
    """The rules deny what it has made of the arguments."""
    return replace(
        error,
        message=f"{error.message} {_named(turn)} had changed the arguments.",
        details={**error.details, "hook": turn.name},
    )


def out_of_place() -> CallError:
    """It answered with what is for the other stage."""
    return _fault("Before a call its arguments can be changed, and after it its result.")


def failure_with_output() -> CallError:
    """It gave a failure structured output."""
    return _fault("The tool failed, so that its content alone can be changed.")


def masked(placeholder: str) -> CallError:
    """It was shown arguments without a secret that is in them, and changed them."""
    return _fault(f'"{placeholder}" stands where a secret was taken out of what it was shown.')


def too_long(limit: str, limit_bytes: int) -> CallError:
    """Its arguments or its content are."""
    return CallError(
        code=Code.TOOL_EXECUTION_FAILED,
        message=f"It is longer than the {limit_bytes:,} bytes of `{limit}`.",
        details={"limit": limit, "value": limit_bytes, "unit": "bytes"},
    )


def _fault(message: str) -> CallError:
    return CallError(code=Code.TOOL_EXECUTION_FAILED, message=message)


def _named(turn: HookTurn) -> str:
    return f'The hook "{turn.name}"' if turn.kind is HookKind.HOOK else f'The middleware "{turn.name}"'


def _details(turn: HookTurn, stage: Stage, reason: str) -> dict[str, object]:
    details: dict[str, object] = {"reason": reason, "hook": turn.name, "kind": turn.kind.value, "stage": stage.value}
    return details if stage is Stage.BEFORE else {**details, "tool_finished": True}


def _cut(reason: str) -> str:
    return reason.encode(errors="replace")[:MAX_REASON_BYTES].decode(errors="ignore")
