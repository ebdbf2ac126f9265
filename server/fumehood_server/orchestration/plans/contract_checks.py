"""Holds outputs of a plan's steps against contracts, as `constraints` does for those of other modes."""

from __future__ import annotations

import functools

from fumehood_server.orchestration.constraints.contract import Contract, prepare
from fumehood_server.orchestration.constraints.faults import error_of
from fumehood_server.orchestration.constraints.meaning import judge_by
from fumehood_server.orchestration.constraints.output import check_output
from fumehood_server.orchestration.constraints.prompts import instructions
from fumehood_server.orchestration.context import RunContext
from fumehood_server.orchestration.plans.checking import OutputVerdict
from fumehood_server.orchestration.plans.long_json import loaded
from fumehood_server.orchestration.request import OutputContract


class ContractChecks:
    """The `OutputChecks` of one run."""

    def __init__(self, run: RunContext) -> None:
        """Nothing is prepared yet."""
        self._run = run
        self._contracts: dict[int, tuple[OutputContract, Contract]] = {}
        """By the identity of the contract, which is kept beside it. Schemas have no hash."""

    async def prepare(self, contract: OutputContract) -> None:
        """See `OutputChecks`."""
        await self._prepared(contract)

    async def instructions(self, contract: OutputContract) -> str:
        """See `OutputChecks`."""
        return instructions(await self._prepared(contract), self._run.engine)

    async def check(self, text: str, contract: OutputContract, *, cut_off: bool, judge: str) -> OutputVerdict:
        """See `OutputChecks`."""
        prepared = await self._prepared(contract)
        ask = functools.partial(self._run.infer, judge)
        asks = functools.partial(judge_by, self._run, contract.semantic_check, ask)
        checked = await check_output(text, prepared, self._run.checks, cut_off=cut_off, judge=asks)
        if checked.faults:
            return OutputVerdict(text=text, error=error_of(checked.faults, attempts=1))
        if prepared.is_text or contract.grammar:
            taken = await loaded(checked.output_json)
            return OutputVerdict(text=taken if isinstance(taken, str) else checked.output_json)
        return OutputVerdict(text=checked.output_json, is_json=True, value=await loaded(checked.output_json))

    async def _prepared(self, contract: OutputContract) -> Contract:
        found = self._contracts.get(id(contract))
        if found is None:
            key = self._run.request.turn_path
            found = self._contracts[id(contract)] = contract, await prepare(contract, self._run.checks, key=key)
        return found[1]
