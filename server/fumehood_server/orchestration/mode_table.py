"""Which function carries out which mode."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fumehood_server.orchestration.context import ModeResult, RunContext
from fumehood_server.orchestration.modes.chat import run_chat
from fumehood_server.orchestration.modes.plan import run_plan
from fumehood_server.orchestration.modes.redundant import run_redundant
from fumehood_server.orchestration.modes.structured import run_structured
from fumehood_server.orchestration.plans.contract_checks import ContractChecks
from fumehood_server.orchestration.request import Mode

MODES: Mapping[Mode, Callable[[RunContext], Awaitable[ModeResult]]] = {
    Mode.CHAT: run_chat,
    Mode.STRUCTURED: run_structured,
    Mode.PLAN: lambda run: run_plan(run, ContractChecks(run)),
    Mode.REDUNDANT: run_redundant,
}
