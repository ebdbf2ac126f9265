"""Which calls may run, need an approval or are denied; and the approvals."""

from fumehood_server.policy.desk import ApprovalDesk
from fumehood_server.policy.interfaces import DeskSettings
from fumehood_server.policy.rules import RuleSet

__all__ = ["ApprovalDesk", "DeskSettings", "RuleSet"]
