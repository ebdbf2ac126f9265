"""Plans of mode `plan`: read, held against their policy, carried out and traced (docs/orchestration-plans.md)."""

from fumehood_server.orchestration.plans.checking import OutputChecks, OutputVerdict
from fumehood_server.orchestration.plans.parsing import parse_plan
from fumehood_server.orchestration.plans.plan import ExecutionPlan
from fumehood_server.orchestration.plans.policy import check_plan
from fumehood_server.orchestration.plans.trace import PlanTrace

__all__ = ["ExecutionPlan", "OutputChecks", "OutputVerdict", "PlanTrace", "check_plan", "parse_plan"]
