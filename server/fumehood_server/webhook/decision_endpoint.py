"""`POST /approvals/decide`: a signed decision, made as one configured caller, by the same rules as DecideApproval."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fumehood_server.config.webhook import Replies
from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.approvals import Choice
from fumehood_server.model.caller import Authentication, Caller
from fumehood_server.model.text import printable
from fumehood_server.policy import Decisions
from fumehood_server.secrets import SecretStore, SecretUnavailableError
from fumehood_server.telemetry import get_logger
from fumehood_server.telemetry.metrics import SidecarMetrics
from fumehood_server.webhook.approval_json import iso_time
from fumehood_server.webhook.http_server import HttpAnswer, HttpRefusedError, HttpRequest
from fumehood_server.webhook.signature import (
    TOLERANCE_S,
    SecretUnfitError,
    SignatureRefusedError,
    check_signature,
    check_time,
    signing_key,
)

PATH = "/approvals/decide"
ID_USED = "WEBHOOK_ID_USED"
"""The one reason that gRPC does not have."""
MAX_IDS = 100_000
"""Ids that are kept: each was signed with the operator's own secret."""
_SHOWN_CHARS = 200
_STATUS = {
    RefusalReason.UNAUTHENTICATED: 401,
    RefusalReason.APPROVAL_NOT_ALLOWED: 403,
    RefusalReason.APPROVAL_NOT_FOUND: 404,
    RefusalReason.APPROVAL_CLOSED: 409,
    RefusalReason.APPROVAL_CHANGED: 409,
    RefusalReason.REQUEST_INVALID: 422,
    RefusalReason.JOURNAL_UNAVAILABLE: 503,
}
_LOG_EVERY_S = 60.0


class _Body(BaseModel):
    """What a decision says. A key that is not known is refused: it could have meant something."""

    model_config = ConfigDict(extra="forbid", strict=True)

    approval_id: str = Field(min_length=1)
    choice: Literal["approve", "deny", "withdraw"]
    digest: str = ""
    reason: str = ""
    approver: str = Field(default="", pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$|^$")


class DecisionEndpoint:
    """Answers requests. For one event loop."""

    def __init__(
        self, decisions: Decisions, replies: Replies, secrets: SecretStore, metrics: SidecarMetrics | None
    ) -> None:
        """Decide as the caller of the configuration."""
        self._decisions = decisions
        self._replies = replies
        self._secrets = secrets
        self._metrics = metrics
        self._ids: OrderedDict[str, float] = OrderedDict()
        """Ids that were taken, until when no message could come again under them anyway."""
        self._unauthenticated = 0
        self._logged_s: float | None = None

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """See the module. Every fault of the request is an answer."""
        if request.path != PATH:
            return self._counted(_error(404, RefusalReason.REQUEST_INVALID, f"decisions go to {PATH}"))
        if request.method != "POST":
            refused = _error(405, RefusalReason.REQUEST_INVALID, "decisions are posted", headers=(("allow", "POST"),))
            return self._counted(refused)
        try:
            message_id = await self._authenticated(request)
        except SignatureRefusedError:
            self._log_unauthenticated()
            return self._counted(_error(401, RefusalReason.UNAUTHENTICATED, "the message is not signed as it must be"))
        except (SecretUnavailableError, SecretUnfitError) as exc:
            get_logger().error("webhook_secret_unusable", secret=self._replies.secret, message=str(exc))
            return self._counted(_error(503, "SECRET_UNAVAILABLE", "the sidecar can't read its secret"))
        return self._counted(await self._answer_once(message_id, request.body))

    def refuse(self, problem: HttpRefusedError) -> HttpAnswer:
        """The answer to what is no request."""
        return self._counted(_error(problem.status, RefusalReason.REQUEST_INVALID, str(problem)))

    async def _authenticated(self, request: HttpRequest) -> str:
        check_time(request.headers, time.time())
        key = signing_key(await self._secrets.read_secret(self._replies.secret))
        return check_signature(key, request.headers, request.body)

    async def _answer_once(self, message_id: str, body: bytes) -> HttpAnswer:
        """Take the id, unless it is taken. One that could not be answered can come again."""
        now_s = time.time()
        while self._ids and next(iter(self._ids.values())) < now_s:
            self._ids.popitem(last=False)
        if message_id in self._ids:
            return _error(409, ID_USED, "a message with this webhook-id was taken before")
        if len(self._ids) >= MAX_IDS:
            return _error(503, "TOO_MANY_MESSAGES", f"{MAX_IDS:,} messages came within {2 * TOLERANCE_S} s")
        # A message may be dated ahead of this clock by the tolerance, and come again until it is as old as that.
        self._ids[message_id] = now_s + 2 * TOLERANCE_S
        answer: HttpAnswer | None = None
        try:
            answer = await self._decide(body)
        finally:
            if answer is None or answer.status == _STATUS[RefusalReason.JOURNAL_UNAVAILABLE]:
                self._ids.pop(message_id, None)
        return answer

    async def _decide(self, body: bytes) -> HttpAnswer:
        try:
            wish = _Body.model_validate(orjson.loads(body))
        except orjson.JSONDecodeError:
            return _error(422, RefusalReason.REQUEST_INVALID, "the body is not JSON")
        except ValidationError as exc:
            return _error(422, RefusalReason.REQUEST_INVALID, _problem(exc))
        connection = f"webhook:{wish.approver}" if wish.approver else "webhook:"
        by = Caller(name=self._replies.caller, authenticated_by=Authentication.WEBHOOK, connection=connection)
        try:
            decided = await self._decisions.decide(
                wish.approval_id, Choice(wish.choice), by, digest=wish.digest, reason=wish.reason
            )
        except RefusedError as exc:
            refusal = exc.refusal
            return _error(_STATUS[refusal.reason], refusal.reason, refusal.message, refusal)
        told = {
            "approval_id": decided.approval_id,
            "state": decided.state.value,
            "digest": decided.digest,
            "expires_at": iso_time(decided.expires_us),
        }
        return HttpAnswer(200, orjson.dumps({"approval": told}))

    def _counted(self, answer: HttpAnswer) -> HttpAnswer:
        if self._metrics is not None:
            self._metrics.webhook_decisions.add(str(answer.status))
        return answer

    def _log_unauthenticated(self) -> None:
        """Say that somebody tries, or signs with another secret: once a minute."""
        self._unauthenticated += 1
        now_s = time.monotonic()
        if self._logged_s is None or now_s - self._logged_s >= _LOG_EVERY_S:
            get_logger().warning("webhook_unauthenticated", times=self._unauthenticated)
            self._logged_s, self._unauthenticated = now_s, 0


def _error(
    status: int,
    reason: str,
    message: str,
    refusal: Refusal | None = None,
    *,
    headers: tuple[tuple[str, str], ...] = (),
) -> HttpAnswer:
    metadata: dict[str, Any] = {} if refusal is None else dict(refusal.metadata)
    told = {"reason": str(reason), "message": printable(message), "metadata": metadata}
    return HttpAnswer(status, orjson.dumps({"error": told}), headers)


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"])) or "the body"
    return printable(f"{place}: {first['msg']}")[:_SHOWN_CHARS]


__all__ = ["ID_USED", "MAX_IDS", "PATH", "DecisionEndpoint"]
