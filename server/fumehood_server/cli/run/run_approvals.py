"""Approvals of a run's calls, decided where the run is watched: y, or n and why."""

from __future__ import annotations

from collections import deque

from fumehood.v1 import approval_service_pb2 as pb

from fumehood_server.cli import output
from fumehood_server.cli.approval_json import approval_json
from fumehood_server.cli.approval_screen import MAX_LINES, diffed, pretty
from fumehood_server.cli.client import SidecarClient
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.run.run_views import RunView

MAX_SHOWN_BYTES = 16 * 1024
"""Of arguments that are decided here. What is longer is decided where there is a pager."""
_ELSEWHERE = "fumehood approvals approve"
_YES, _NO = frozenset({"y", "yes"}), frozenset({"n", "no"})


class RunApprovals:
    """Those that wait. The first one is asked about; each is decided with the digest of what was shown."""

    def __init__(self, client: SidecarClient, view: RunView, *, asks: bool) -> None:
        """`asks`: whether somebody is there to be asked."""
        self._client = client
        self._view = view
        self._asks = asks
        self._waiting: deque[pb.Approval] = deque()

    @property
    def question(self) -> str:
        """What is asked now. Empty: nothing."""
        return f"let {output.one_line(self._waiting[0].tool)} run? y, or n and why" if self._waiting else ""

    def add(self, approval_id: str, tool: str) -> None:
        """One is waited for."""
        name = output.one_line(tool)
        where = f"{name} waits for an approval: {_ELSEWHERE} {output.one_line(approval_id)}"
        if not self._asks:
            self._view.say(where, "yellow")
            return
        try:
            found = self._client.list_approvals(approval_id)
        except CommandError as error:  # it is decided already, or is for others to decide
            self._view.say(f"{where} ({output.one_line(error.what)})", "yellow")
            return
        for approval in found:
            if approval.state != pb.APPROVAL_STATE_PENDING:
                continue
            text = pretty(approval.arguments_json)
            if len(text) > MAX_SHOWN_BYTES or text.count("\n") >= MAX_LINES:
                todo = "its arguments are too long to be decided here: fumehood approvals watch"
                self._view.say(f"{name} waits for an approval; {todo}", "yellow")
                continue
            self._waiting.append(approval)
            if len(self._waiting) == 1:
                self._show()

    def drop(self, call_id: str) -> None:
        """Its call goes on or has ended: somebody else has decided."""
        first = self._waiting[0] if self._waiting else None
        self._waiting = deque(each for each in self._waiting if each.call_id != call_id)
        if self._waiting and self._waiting[0] is not first:
            self._show()

    def answer(self, line: str) -> None:
        """Decide the first one."""
        word, _, reason = line.strip().partition(" ")
        choice = "APPROVE" if word.lower() in _YES else "DENY" if word.lower() in _NO else ""
        if not choice:
            self._view.say("y lets it run, and n denies it; a reason may follow, and is recorded", "dim")
            return
        if choice == "DENY" and not reason.strip():
            self._view.say("say why: n, and the reason, which the model is told", "dim")
            return
        approval = self._waiting.popleft()
        request = pb.DecideApprovalRequest(
            approval_id=approval.approval_id,
            choice=pb.ApprovalChoice.Value(f"APPROVAL_CHOICE_{choice}"),
            digest=approval.digest,
            reason=reason.strip(),
        )
        try:
            state = approval_json(self._client.decide_approval(request))["state"]
        except CommandError as error:
            self._view.say(f"not decided: {output.one_line(f'{error.what} {error.todo}')}", "yellow")
            self._view.say(f"{output.one_line(approval.tool)}: {_ELSEWHERE} {approval.approval_id}", "yellow")
        else:
            more = "; it waits for more approvals" if state == "pending" else ""
            self._view.say(f"{output.one_line(approval.tool)}: {state}{more}", "dim")
        if self._waiting:
            self._show()

    def _show(self) -> None:
        """What would run, before it is asked about."""
        approval = self._waiting[0]
        shape = approval_json(approval)
        level = shape["side_effects"]
        rules = ", ".join(each["rule"] for each in shape["requirements"])
        head = f"{approval.tool} of {approval.plugin}, level {level}, waits for an approval by {rules or 'its level'}"
        self._view.say(output.one_line(head), output.LEVEL_STYLES.get(level, "yellow"))
        for line in diffed("", approval.arguments_json):
            self._view.say(line.plain, str(line.style))
