"""What a sidecar or gRPC refuses, and a sidecar that can't be reached, as errors of commands, each with its remedy."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc

from fumehood_server.cli.channel import tls_problem
from fumehood_server.cli.failure import CommandError, ExitStatus


def unreachable(target: str, why: str = "nobody listens there") -> CommandError:
    """The error for a sidecar that isn't there."""
    return CommandError(
        f"can't reach the sidecar at {target}: {why}",
        "Start it with `fumehood serve`, or say where it is with --address or FUMEHOOD_ADDRESS"
        " (`fumehood plugin dev` prints its own).",
        code="UNREACHABLE",
        status=ExitStatus.UNREACHABLE,
        details={"address": target},
    )


def forbidden(target: str) -> CommandError:
    """The error for a socket that this user may not connect to (unix(7)): a sidecar may well serve there."""
    path = Path(target.removeprefix("unix:"))
    try:
        found = path.lstat()
    except OSError:
        why = f"user {os.geteuid()} may not pass through {path.parent}"
    else:
        mode = stat.S_IMODE(found.st_mode)
        whose = f"user {found.st_uid}, group {found.st_gid}, mode {mode:04o}"
        why = f"user {os.geteuid()} may not connect: the socket is of {whose}"
    return CommandError(
        f"can't reach the sidecar at {target}: {why}",
        "Run this as the sidecar's user or as a member of the socket's group. Its operator opens it to a group with"
        ' `socket_group = "NAME"` in [server] of fumehood.toml.',
        code="FORBIDDEN",
        status=ExitStatus.UNREACHABLE,
        details={"address": target},
    )


_TODO = {
    grpc.StatusCode.INVALID_ARGUMENT: "Mend the request; `fumehood tools NAME` shows what a tool takes.",
    grpc.StatusCode.UNAUTHENTICATED: "Give a token by --token or FUMEHOOD_TOKEN; `fumehood token add` makes one.",
    grpc.StatusCode.PERMISSION_DENIED: "Its operator says who may: `operator = true` of a [[caller]] in fumehood.toml.",
    grpc.StatusCode.ALREADY_EXISTS: "Give another --call-id, or leave it out.",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "Wait for other calls to finish and try again.",
    grpc.StatusCode.FAILED_PRECONDITION: "Mend what it names and try again.",
    grpc.StatusCode.UNAVAILABLE: "It is shutting down, or died: start it again with `fumehood serve`.",
    grpc.StatusCode.UNIMPLEMENTED: "This sidecar is of another version: update the older of the two.",
    grpc.StatusCode.DEADLINE_EXCEEDED: "Try again; `fumehood plugin list` shows what the sidecar is busy with.",
    grpc.StatusCode.INTERNAL: "This is a fault of the sidecar; its log says more.",
}

_SERVES_ON = "What was there before still serves, if it did."

_TODO_BY_REASON = {
    "JOURNAL_UNAVAILABLE": "Mend what the message names, and try again; the sidecar's log says more.",
    "PLUGIN_NOT_FOUND": "`fumehood plugin list` lists what there is.",
    "TOOL_NOT_FOUND": "`fumehood tools --all` lists what there is.",
    "RUN_ID_IN_USE": "Give another --id, or the request of that run, word by word.",
    "RUN_NOT_RESUMABLE": "`fumehood journal show RUN` says what it has done. Ask anew, with another --id.",
    "RUN_ELSEWHERE": "Ask that sidecar, or again here later.",
    "RUN_SUSPENDED": "Send it again with the same --id: the run goes on.",
    "RUN_NOT_STEERABLE": "Say it in another run of the same --session.",
    "TOO_MANY_RUNS": "Try again later; `max_runs` of [orchestration] says how many there may be.",
    "SESSION_REFUSED": "Begin another --session.",
    "RUN_NOT_FOUND": "See `fumehood journal list`. A call's --run is to be what `journal replay RUN --from` printed.",
    "RUN_NOT_FORKABLE": "`fumehood journal show RUN --json` lists its events with their positions.",
    "FORK_MISMATCH": "Make the run's calls as they were recorded, or fork it at an earlier event.",
    "STATE_UNWRITABLE": "Let the sidecar's user write to its `state_dir`, and say it again.",
    "APPROVAL_NOT_FOUND": "`fumehood approvals list` and `fumehood approvals standing list --all` list what there is.",
    "APPROVAL_CLOSED": "Nothing more can be decided about it. `fumehood approvals list` lists what is open.",
    "APPROVAL_CHANGED": "Look at it again, with `fumehood approvals list`, and decide about what it is now.",
    "RELOAD_REFUSED": f"{_SERVES_ON} Mend what it names and reload again.",
}


_TODO_BY_LACK = {
    "right": "Its operator says who may: `approve` of a [[caller]], or `operator = true`, in fumehood.toml.",
    "approver": "Somebody else is to approve it: `approvers` and `self_approval` of those rules say who counts.",
    "standing": "Approve it without --standing. For later calls it takes a [[policy.rule]] in fumehood.toml with"
    ' `permission = "require_approval"` and `standing = true`, in place of what asks now.',
}
"""What an approval that is not allowed lacks."""

_VOID = {
    "true": "`fumehood approvals list` shows the one that its call asks for now.",
    "false": "Have the call sent again; `fumehood approvals list` then shows the one that it asks for.",
}
"""By whether its call waits."""


def _todo(status: grpc.StatusCode, reason: str, details: Mapping[str, Any]) -> str:
    if reason == "RELOAD_REFUSED" and details.get("restart"):
        return f"{_SERVES_ON} End the sidecar and start it again with `fumehood serve`: it takes all of the file up."
    if reason == "RELOAD_REFUSED" and details.get("remedy"):
        return f"{_SERVES_ON} To have it taken, {details['remedy']}"
    if reason == "APPROVAL_NOT_ALLOWED" and details.get("lacks") in _TODO_BY_LACK:
        return _TODO_BY_LACK[details["lacks"]]
    if reason == "APPROVAL_CHANGED" and details.get("waits") in _VOID:
        return _VOID[details["waits"]]
    return _TODO_BY_REASON.get(reason) or _TODO.get(status, "")


_STATUS = {
    grpc.StatusCode.UNAVAILABLE: ExitStatus.UNREACHABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: ExitStatus.UNREACHABLE,
}


def decode_status(error: grpc.RpcError, target: str) -> CommandError:
    """A gRPC status as a command's error, with the reason and metadata of its `ErrorInfo` (AIP-193)."""
    from google.rpc import error_details_pb2
    from grpc_status import rpc_status

    call: Any = error  # every RpcError of grpc's own is a Call as well; the stubs know no class that is both
    status: grpc.StatusCode = call.code()
    reason = status.name
    details: dict[str, Any] = {"address": target, "grpc_status": status.name}
    try:
        rich_status = rpc_status.from_call(call)
    except ValueError:  # the trailer contradicts the status: the status stands
        rich_status = None
    for detail in rich_status.details if rich_status is not None else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info):
            reason = info.reason or reason
            details.update(info.metadata)
    if status is grpc.StatusCode.UNAVAILABLE and reason == status.name:
        return unreachable(target, tls_problem(call.details() or "") or "the connection was lost")
    return CommandError(
        call.details() or f"the sidecar answered {status.name}",
        _todo(status, reason, details),
        code=reason,
        status=_STATUS.get(status, ExitStatus.WRONG),
        details=details,
    )
