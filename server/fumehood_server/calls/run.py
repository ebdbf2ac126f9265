"""Runs one call from its admission to its outcome: every step, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from structlog.typing import FilteringBoundLogger

from fumehood_server.calls.call import Call
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.calls.errors import StepFailedError
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.steps.acquire import acquire_worker
from fumehood_server.calls.steps.answer import failed, log_outcome, outcome_of
from fumehood_server.calls.steps.check import Checked, check_result
from fumehood_server.calls.steps.find import Tools, find_tool
from fumehood_server.calls.steps.invoke import invoke_tool
from fumehood_server.calls.steps.permit import check_permission
from fumehood_server.calls.steps.prepare import prepare_arguments
from fumehood_server.calls.turns import Turns
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.call import CallError, CallOutcome
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import WorkerPools
from fumehood_server.telemetry.logging import CallLines, correlation

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDependencies:
    """What the steps of every call share."""

    tools: Tools
    pools: WorkerPools
    checks: DocumentChecks
    turns: Turns
    log: FilteringBoundLogger
    lines: CallLines
    linger_s: float
    """See `invoke_tool`."""


async def run_call(call: Call, needs: CallDependencies) -> CallOutcome:
    """Take the call through its steps, log how it ended, and return its one outcome. Raises nothing."""
    progress = Progress()
    try:
        checked = await _take_steps(call, needs, progress)
    except (StepFailedError, WorkerUnavailableError) as exc:
        checked = failed(exc.error)
    except Exception as exc:  # noqa: BLE001 - a fault of ours must not leave an admitted call without its outcome
        checked = failed(_internal_error(call, needs, exc))
    outcome = outcome_of(call, progress, checked)
    try:
        log_outcome(needs.lines, call, progress, outcome)
    except Exception as exc:  # noqa: BLE001 - likewise
        _internal_error(call, needs, exc)
    return outcome


async def _take_steps(call: Call, needs: CallDependencies, progress: Progress) -> Checked:
    """The steps, each a function of a file in `steps`. Raises what the call ends with where one of them ends it."""
    request = call.request
    tool, spec = _passed(find_tool(needs.tools, request.tool))
    progress.tool = tool
    progress.arguments_json = _passed(await prepare_arguments(call, tool, needs.checks))
    _passed(check_permission(tool))
    # Here: before-hooks. What they change is prepared and permitted anew.
    # Here: approval of exactly what will run. Nothing changes the arguments after it.
    # Here: quotas.
    # Here: the intent, in the journal.
    with await acquire_worker(call, tool, spec, needs.pools, needs.turns) as worker:
        result = progress.result = await invoke_tool(call, tool, worker, progress, linger_s=needs.linger_s)
    return await check_result(call, tool, spec, result, needs.checks)
    # Here: after-hooks, and then the outcome, in the journal.


def _passed(value: _Value | CallError) -> _Value:
    """What a step returned, unless it says that the call ends there."""
    if isinstance(value, CallError):
        raise StepFailedError(value)
    return value


def _internal_error(call: Call, needs: CallDependencies, exc: Exception) -> CallError:
    request = call.request
    needs.log.error("a step of a call failed", exc_info=exc, call_id=request.call_id, **correlation(request.context))
    return CallError(
        code=Code.TOOL_EXECUTION_FAILED,
        message=f"The sidecar failed while it ran {request.tool[:64]}; its log says more.",
        details={"reason": "internal_error"},
    )
