"""What a run has used of what it may."""

from __future__ import annotations

from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.failures import RunFailedError, failed
from fumehood_server.orchestration.request import Budget
from fumehood_server.orchestration.response import TokenUsage


def narrowest(*budgets: Budget) -> Budget:
    """The bounds that are met first."""

    def least(values: list[float | int | None]) -> float | int | None:
        return min((each for each in values if each is not None), default=None)

    tokens = least([each.max_tokens for each in budgets])
    calls = least([each.max_tool_calls for each in budgets])
    return Budget(
        max_tokens=None if tokens is None else int(tokens),
        max_cost=least([each.max_cost for each in budgets]),
        max_tool_calls=None if calls is None else int(calls),
    )


class Spending:
    """Counts up. What is under way is not counted before its end: several inferences at once may go beyond together."""

    __slots__ = ("_budget", "tool_calls", "usage")

    def __init__(self, budget: Budget) -> None:
        """Nothing was used."""
        self._budget = budget
        self.usage = TokenUsage()
        self.tool_calls = 0

    def check_inference(self) -> None:
        """Let an inference through.

        Raises:
            RunFailedError: tokens or money are used up.
        """
        budget, usage = self._budget, self.usage
        used = usage.input_tokens + usage.output_tokens
        if budget.max_tokens is not None and used >= budget.max_tokens:
            raise _used_up("max_tokens", used, budget.max_tokens)
        if budget.max_cost is not None and usage.cost >= budget.max_cost:
            raise _used_up("max_cost", usage.cost, budget.max_cost)

    def take_tool_calls(self, count: int) -> None:
        """Count calls that are about to be made.

        Raises:
            RunFailedError: there may not be as many. None is counted.
        """
        most = self._budget.max_tool_calls
        if most is not None and self.tool_calls + count > most:
            raise _used_up("max_tool_calls", self.tool_calls, most)
        self.tool_calls += count


def _used_up(name: str, used: float, limit: float) -> RunFailedError:
    return failed(
        Code.TOOL_QUOTA_EXCEEDED,
        f"the run's budget is used up: {name} is {limit:g}, and {used:g} are used. Ask for less, or raise it",
        details={"budget": name, "limit": limit, "used": used},
    )
