"""A model of approvals against a real sidecar: decided, edited, withdrawn, expired, cancelled, asked again, waited for
while others do that, and restarted or killed, in any order.

Whatever happens, a call has one outcome and one effect at most, and no approval is used twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from fumehood.v1 import approval_service_pb2 as apb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.approval_service_pb2_grpc import ApprovalServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from grpc_status import rpc_status
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.approvals.support import APPROVE, BOUND_S, DENY, WITHDRAW, Place
from tests.machine_clock import MachineClock, library
from tests.rpc.support import reason_of
from tests.sidecar import Sidecar

EXAMPLES, STEPS = int(os.environ.get("APPROVAL_EXAMPLES", "2")), 20
CLOSED = "APPROVAL_CLOSED"
LATER_S = 3_700
"""Longer than an approval waits or is kept; a test's steps together are shorter than an id stands for its call."""
OVER = {"denied", "withdrawn", "expired"}
OPEN = {"pending", "approved"}


@dataclass
class Modelled:
    """A call as it should be."""

    call_id: str
    line: str
    approval: Any
    state: str = "pending"
    runs: str = ""
    """The line that an approved call writes."""
    is_told: bool = False
    """Whether its outcome is recorded: its caller was told."""


class Approvals(RuleBasedStateMachine):
    """One sidecar after another in one folder."""

    calls = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="fh-")))
        folder.chmod(0o755)
        self.place = Place(folder)
        self.clock = MachineClock(folder) if library() is not None else None
        self.ahead_s = 0
        self.running = contextlib.ExitStack()
        self.lines: list[str] = []
        self.modelled: list[Modelled] = []
        self.number = 0

    @initialize()
    def start(self) -> None:
        environment = None if self.clock is None else self.clock.environment
        self.sidecar: Sidecar = self.running.enter_context(self.place.sidecar(environment=environment))
        channel = self.running.enter_context(
            grpc.insecure_channel(self.sidecar.target, options=[("grpc.use_local_subchannel_pool", 1)])
        )
        self.tools, self.approvals = ToolServiceStub(channel), ApprovalServiceStub(channel)

    def teardown(self) -> None:
        self.running.close()
        self.stack.close()

    def send(self, call_id: str, line: str) -> tuple[str, dict[str, Any]]:
        """The error's code, or nothing, and its details."""
        return answer(self.tools.CallTool.future(self.place.call(line, call_id, at_once=True), timeout=BOUND_S))

    def waiting(self, call: Modelled) -> Any:
        """The same call, that waits for its approval. Its answer is to be taken by `answer`."""
        return self.tools.CallTool.future(self.place.call(call.line, call.call_id), timeout=BOUND_S)

    def found(self, approval_id: str) -> apb.Approval:
        (found,) = self.approvals.ListApprovals(apb.ListApprovalsRequest(approval_id=approval_id)).approvals
        return found

    @rule(target=calls)
    def ask(self) -> Modelled:
        self.number += 1
        call_id = f"c{self.number}"
        code, details = self.send(call_id, call_id)
        assert code == "TOOL_APPROVAL_REQUIRED"
        made = Modelled(call_id, call_id, self.found(details["approval_id"]))
        self.modelled.append(made)
        return made

    @rule(
        call=calls,
        choice=st.sampled_from([APPROVE, APPROVE, DENY, WITHDRAW]),
        edit=st.booleans(),
        waits=st.booleans(),
    )
    def decide(self, call: Modelled, choice: apb.ApprovalChoice.ValueType, *, edit: bool, waits: bool) -> None:
        edit, waits = edit and choice == APPROVE, waits and call.state == "pending"
        sent = self.waiting(call) if waits else None
        runs = f"{call.line}-edited" if edit else call.line
        request = apb.DecideApprovalRequest(
            approval_id=call.approval.approval_id,
            choice=choice,
            digest=call.approval.digest,
            arguments_json=self.place.arguments(runs) if edit else "",
        )
        try:
            self.approvals.DecideApproval(request, timeout=BOUND_S)
            said = ""
        except grpc.RpcError as error:
            said = reason_of(error)  # type: ignore[arg-type] # likewise
        may = call.state == "pending" or (call.state == "approved" and choice == WITHDRAW)
        assert said == ("" if may else CLOSED), (call, choice)
        if may:
            call.state, call.runs = {APPROVE: "approved", DENY: "denied", WITHDRAW: "withdrawn"}[choice], runs
        if sent is not None:
            self.check(call, *answer(sent))

    @rule(call=calls)
    def come_again(self, call: Modelled) -> None:
        self.check(call, *self.send(call.call_id, call.line))

    def check(self, call: Modelled, code: str, details: dict[str, Any]) -> None:
        """Hold an answer to the call against the model, and take it up there."""
        if call.state == "pending":
            assert (code, details["approval_id"]) == ("TOOL_APPROVAL_REQUIRED", call.approval.approval_id)
        elif call.state == "cancelled":
            assert code == "CANCELLED_SIGNAL"
        elif call.state in OVER:
            assert (code, details["reason"]) == ("TOOL_DENIED", f"approval_{call.state}")
            call.is_told = True
        else:
            assert code == ""
            if call.state == "approved":
                self.lines.append(call.runs)
            call.state, call.is_told = "used", True

    @rule(call=calls)
    def come_with_other_arguments(self, call: Modelled) -> None:
        other = f"{call.line}x"
        code, details = self.send(call.call_id, other)
        if call.is_told:
            assert code == "CALL_ID_IN_USE"
            return
        assert code == "TOOL_APPROVAL_REQUIRED"
        assert self.found(call.approval.approval_id).state in {
            apb.APPROVAL_STATE_WITHDRAWN,
            apb.APPROVAL_STATE_DENIED,
            apb.APPROVAL_STATE_EXPIRED,
        }
        call.line, call.state, call.approval = other, "pending", self.found(details["approval_id"])

    @rule(call=calls)
    def cancel(self, call: Modelled) -> None:
        """While it waits."""
        if call.state != "pending":
            return
        sent = self.waiting(call)
        while not sent.done():
            with contextlib.suppress(grpc.RpcError):  # it has not come yet
                self.tools.CancelCall(pb.CancelCallRequest(call_id=call.call_id), timeout=BOUND_S)
        call.state, call.is_told = "cancelled", True
        self.check(call, *answer(sent))

    @precondition(lambda self: self.clock is not None)
    @rule()
    def expire(self) -> None:
        """All that is open, by the clock."""
        still_open = [each for each in self.modelled if each.state in OPEN]
        self.ahead_s += LATER_S
        assert self.clock is not None
        self.clock.set(self.ahead_s)
        for each in still_open:
            each.state = "expired"
        if still_open:
            self.come_again(still_open[0])

    @rule(
        chance=st.integers(0, 2),
        number=st.sampled_from([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]),
        call=st.one_of(st.none(), calls),
    )
    def end(self, chance: int, number: signal.Signals, call: Modelled | None) -> None:
        """Kill the sidecar, or shut it down, maybe while a call waits: that may come again."""
        if chance:  # a start takes longer than all else
            return
        sent = self.waiting(call) if call is not None and call.state == "pending" else None
        self.sidecar.process.send_signal(number)
        self.sidecar.process.wait(BOUND_S)
        if sent is not None:
            assert answer(sent)[0] in {"UNAVAILABLE", "DRAINING", "CANCELLED_SIGNAL"}
        self.running.close()
        self.running = contextlib.ExitStack()
        self.start()

    @invariant()
    def has_one_effect_for_each_that_ran(self) -> None:
        assert self.place.lines() == self.lines
        if self.modelled:
            listed = self.approvals.ListApprovals(apb.ListApprovalsRequest(page_size=1000)).approvals
            expected = {each.approval.approval_id for each in self.modelled if each.state in OPEN}
            assert {each.approval_id for each in listed} == expected


def answer(sent: Any) -> tuple[str, dict[str, Any]]:
    """The error's code, or nothing, and its details."""
    try:
        result = sent.result(BOUND_S).result
    except grpc.RpcError as error:
        if rpc_status.from_call(error) is None:  # type: ignore[arg-type] # it has what is asked for
            return str(error.code().name), {}  # type: ignore[attr-defined] # likewise
        return reason_of(error), {}  # type: ignore[arg-type] # likewise
    return result.error.code, json.loads(result.error.details_json or "{}")


def test_whatever_happens_to_approvals_each_call_has_one_effect_at_most() -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        Approvals,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=checks, database=None
        ),
    )
