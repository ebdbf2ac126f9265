"""Which calls may run, need an approval or are denied; how much all may use; and the approvals."""

from fumehood_server.policy.decisions import Decisions
from fumehood_server.policy.desk import ApprovalDesk
from fumehood_server.policy.interfaces import DeskSettings
from fumehood_server.policy.quotas import QuotaSet
from fumehood_server.policy.rules import RuleSet
from fumehood_server.policy.standing_decisions import StandingDecisions

__all__ = ["ApprovalDesk", "Decisions", "DeskSettings", "QuotaSet", "RuleSet", "StandingDecisions"]
