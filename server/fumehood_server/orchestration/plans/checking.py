"""Interface of what holds outputs against contracts: schema, rules, repair, and a model's own judgement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from fumehood_server.model.call import CallError
from fumehood_server.orchestration.request import OutputContract


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputVerdict:
    """What an output is worth."""

    text: str
    """As it was taken: mended, where that is allowed."""
    is_json: bool = False
    """Whether the contract wants JSON, which `value` is then."""
    value: Any = None
    error: CallError | None = None
    """Why it does not fit: a failure of the constraints or of validation. None: it fits."""


class OutputChecks(Protocol):
    """Holds outputs of one run against contracts. None of them is empty."""

    async def prepare(self, contract: OutputContract) -> None:
        """Find out whether a contract can be used, before anything is done for it.

        Raises:
            RunFailedError: its schema or a rule can't be used.
        """

    async def instructions(self, contract: OutputContract) -> str:
        """What a model has to be told of a contract, beside what its engine holds it to. Empty: nothing."""

    async def check(self, text: str, contract: OutputContract, *, cut_off: bool, judge: str) -> OutputVerdict:
        """Hold a text against a contract.

        `cut_off`: a model was stopped in the middle of it. `judge` names the inference that the contract's
        `semantic_check` takes.

        Raises:
            RunFailedError: it can't be checked, such as for want of a model's answer.
        """
