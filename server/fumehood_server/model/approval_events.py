"""What the journal records of approvals. Each event is about the call that asks; see `model.approvals`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fumehood_server.model.events import Digested, Event


@dataclass(slots=True, kw_only=True)
class ApprovalRequested(Event):
    """A call needs one, and waits for it or will come again."""

    TYPE: ClassVar[str] = "approval_requested"
    approval_id: str
    digest: str
    """Of what is to be approved."""
    arguments_hash: str
    arguments: Digested | None
    """The text that the tool would get. None: it is not recorded."""
    side_effects: str
    definition: str
    plugin: str
    """Digest of the plugin's files."""
    policy: str
    """Version of the rules."""
    rules: tuple[str, ...]
    """Those that ask for it."""
    caller: str
    """Name of who asks. Empty: it has none."""
    authenticated_by: str
    connection: str
    expires_us: int


@dataclass(slots=True, kw_only=True)
class ApprovalDecided(Event):
    """Somebody approved or denied it."""

    TYPE: ClassVar[str] = "approval_decided"
    approval_id: str
    choice: str
    digest: str
    """Of what they saw."""
    by: str
    authenticated_by: str
    connection: str
    reason: str
    edited_digest: str = ""
    """Of what they approved in its place. Empty: they approved what they saw."""
    arguments_hash: str = ""
    arguments: Digested | None = None
    """The text that they put in its place. None: none, or it is not recorded."""
    standing_id: str = ""
    """The standing approval that they made of it. Empty: none."""


@dataclass(slots=True, kw_only=True)
class ApprovalWithdrawn(Event):
    """Somebody took it back, whether or not it was given."""

    TYPE: ClassVar[str] = "approval_withdrawn"
    approval_id: str
    by: str
    authenticated_by: str
    connection: str
    reason: str


@dataclass(slots=True, kw_only=True)
class ApprovalExpired(Event):
    """It was not decided, or not used, in time."""

    TYPE: ClassVar[str] = "approval_expired"
    approval_id: str
    was: str
    """`pending` or `approved`."""


@dataclass(slots=True, kw_only=True)
class ApprovalUsed(Event):
    """The call that it was given for has begun: in the transaction of that call's start."""

    TYPE: ClassVar[str] = "approval_used"
    approval_id: str
    digest: str
    approvers: tuple[str, ...]
    """Names of who approved."""
