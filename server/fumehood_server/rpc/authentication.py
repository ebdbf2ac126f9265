"""gRPC interceptor: every request is authenticated, and authorised for its method, before its servicer sees it."""

from __future__ import annotations

import asyncio
import re
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import grpc

from fumehood_server.callers import Authenticator, Presented, expiry_of
from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.caller import MCP_CLIENT, Caller, CallerRights
from fumehood_server.rpc.refusals import RefusalRecords
from fumehood_server.rpc.status import aborting
from fumehood_server.rpc.wrapped_handlers import Answer, Context, Method, WrappedHandlers
from fumehood_server.telemetry import get_logger
from fumehood_server.token_bucket import TokenBucket

LOG_BURST = 16
LOG_PER_SECOND = 0.1
"""Lines of refused requests that are logged one by one. The next line says how many were not."""

FOR_EVERY_CALLER: Final = frozenset(
    {
        *(
            f"/fumehood.v1.ToolService/{name}"
            for name in (
                *("ListTools", "GetTool", "CheckAvailability", "CallTool", "StreamTool"),
                *("CallTools", "Session", "GetCall", "CancelCall", "AnswerQuestion"),
            )
        ),
        *(f"/fumehood.v1.ApprovalService/{name}" for name in ("ListApprovals", "WatchApprovals", "DecideApproval")),
        *(f"/fumehood.v1.ApprovalService/{name}" for name in ("ListStandingApprovals", "RevokeStandingApproval")),
        "/fumehood.v1.HookService/Intercept",
        *(f"/fumehood.v1.OrchestrationService/{name}" for name in ("Run", "StreamRun", "SteerRun", "CancelRun")),
        *(
            f"/fumehood.v1.McpService/{name}"
            for name in (
                *("ListMcpServers", "ListResources", "ListResourceTemplates"),
                *("ReadResource", "ListPrompts", "GetPrompt"),
            )
        ),
        *(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo" for version in ("v1", "v1alpha")),
    }
)
"""Methods that answer each caller by its own rights. Every other one takes an operator's."""

_CLIENT = re.compile(r"[0-9a-f.:\[\]]{1,64}")


class Asking(NamedTuple):
    """Who sent the request that the running task serves."""

    admitted: Caller
    """As it was when the request came."""
    presented: Presented
    authenticator: Authenticator
    rights: CallerRights
    operator: bool
    """Whether its method is for operators."""

    def still(self) -> Caller:
        """The caller, by the tokens and rules of this moment: for streams, which outlive them.

        Raises:
            RefusedError: its token is revoked or has expired, or it may use this method no more.
        """
        return _authorised(self.authenticator.identify(self.presented), self.rights, operator=self.operator)


_ASKING: ContextVar[Asking] = ContextVar("asking")


def asking() -> Asking:
    """Who sent the request that this task, or one that it made, serves.

    Raises:
        LookupError: it serves none.
    """
    return _ASKING.get()


class RefusalLog:
    """Logs and records requests that were refused for who sent them, within a rate. For one event loop."""

    __slots__ = ("_allowance", "_records", "_unlogged")

    def __init__(self, records: RefusalRecords) -> None:
        """Nothing was refused yet."""
        self._records = records
        self._allowance = TokenBucket(burst=LOG_BURST, per_second=LOG_PER_SECOND, clock=asyncio.get_running_loop().time)
        self._unlogged = 0

    def refused(self, method: str, refusal: Refusal, caller: str) -> None:
        """One was."""
        self._records.about_call(method.rpartition("/")[2], refusal, "", caller)
        if not self._allowance.take():
            self._unlogged += 1
            return
        unlogged, self._unlogged = self._unlogged, 0
        get_logger().warning(
            "caller_refused",
            reason=refusal.reason.value,
            problem=refusal.metadata.get("problem", ""),
            method=method.removeprefix("/"),
            caller=caller,
            unlogged=unlogged,
        )


class AuthenticatedHandlers(WrappedHandlers):
    """The handlers of one service, at one address."""

    def __init__(
        self,
        handlers: grpc.GenericRpcHandler[Any, Any],
        authenticator: Authenticator,
        rights: CallerRights,
        log: RefusalLog,
        *,
        certificates: bool,
        of_mcp: bool = False,
    ) -> None:
        """`certificates`: whether callers show any at this address. Looking for one costs some 20 µs.

        `of_mcp`: whether the sidecar's own MCP server calls here, for clients that it names.
        """
        super().__init__(handlers)
        self._authenticator = authenticator
        self._rights = rights
        self._log = log
        self._certificates = certificates
        self._of_mcp = of_mcp

    def wrap(self, behaviour: Method[Answer], method: str) -> Method[Answer]:
        """Find who asks, and refuse those who may not. What the method refuses becomes its status."""
        operator = method not in FOR_EVERY_CALLER

        async def authenticated(request: Any, context: Context) -> Answer:  # noqa: ANN401 - what gRPC hands to the method
            presented = self._presented(context)
            who = presented.connection
            try:
                caller = self._authenticator.identify(presented)
                who = caller.recorded
                _authorised(caller, self._rights, operator=operator)
            except RefusedError as exc:
                self._log.refused(method, exc.refusal, who)
                raise
            _ASKING.set(Asking(caller, presented, self._authenticator, self._rights, operator))
            return await behaviour(request, context)

        return aborting(authenticated)

    def _presented(self, context: Context) -> Presented:
        authorization = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
        if self._of_mcp:
            return Presented(connection=_mcp_client(context), authorization=authorization)
        if not self._certificates or authorization:
            return Presented(connection=context.peer(), authorization=authorization)
        shown = context.auth_context()
        names: list[str] = []
        for key in ("x509_subject_alternative_name", "x509_common_name"):
            names += [each.decode(errors="replace") for each in shown.get(key, ()) if each]
        expires = expiry_of(b"".join(shown.get("x509_pem_cert", ()))) if names else 0.0
        return Presented(connection=context.peer(), certificate_names=names, certificate_expires=expires)


def _mcp_client(context: Context) -> str:
    """The connection of the MCP server's client. Not gRPC's, which all of them share."""
    for key, value in context.invocation_metadata() or ():
        if key == MCP_CLIENT and isinstance(value, str) and _CLIENT.fullmatch(value):
            return "mcp:" + value
    return "mcp:unnamed"


def _authorised(caller: Caller, rights: CallerRights, *, operator: bool) -> Caller:
    if operator and not rights.is_operator(caller):
        text = f'"{caller.name}" is no operator here, whom this method is for: its rules are in fumehood.toml'
        raise RefusedError(Refusal(RefusalReason.CALLER_DENIED, text, {"caller": caller.name}))
    return caller
