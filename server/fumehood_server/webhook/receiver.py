"""HTTP client of the webhook: one signed POST to the operator's receiver, by the egress broker."""

from __future__ import annotations

import asyncio
import time

from fumehood_server.config.webhook import Receiver
from fumehood_server.egress import (
    Access,
    EgressError,
    EgressEvent,
    EgressLimits,
    EgressRequest,
    HostRules,
    RequestOrigin,
    open_broker,
    parse_private,
)
from fumehood_server.errors import FumehoodError
from fumehood_server.model.approvals import Approval
from fumehood_server.secrets import SecretStore, SecretUnavailableError
from fumehood_server.webhook.approval_json import requested_message
from fumehood_server.webhook.signature import SecretUnfitError, sign, signing_key

POST_S = 10.0
"""One POST, from the look-up to the head of its answer. Whoever needs longer answers first and works afterwards."""
_CONNECT_S = 5.0
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Room for the largest arguments, which stand in a message up to three times, and beyond ASCII three times as long."""
_MAX_ANSWER_BYTES = 64 * 1024
_ORIGIN = RequestOrigin("approvals.webhook")
_OK, _MULTIPLE_CHOICES = 200, 300


class NotDeliveredError(FumehoodError):
    """A message was not taken. The receiver's operator or ours must act; `outcome` is a word for counts."""

    def __init__(self, outcome: str, message: str) -> None:
        """`message` is one printable sentence."""
        super().__init__(message)
        self.outcome = outcome


class ReceiverClient:
    """Sends approvals to one receiver. TLS is verified, and redirects are answers like any other."""

    def __init__(self, receiver: Receiver, secrets: SecretStore) -> None:
        """Imports the HTTP library: where a loop runs, call `import_broker` in a thread first."""
        self._receiver = receiver
        self._secrets = secrets
        self._broker = open_broker(_no_event)
        self._access = Access(
            methods=frozenset({"POST"}),
            hosts=HostRules(frozenset({receiver.authority})),
            private=frozenset(map(parse_private, receiver.private)),
            limits=EgressLimits(
                timeout_s=POST_S,
                connect_timeout_s=_CONNECT_S,
                max_request_bytes=MAX_MESSAGE_BYTES,
                max_response_bytes=_MAX_ANSWER_BYTES,
                max_received_bytes=2 * _MAX_ANSWER_BYTES,
                max_redirects=0,
            ),
        )

    async def post(self, message_id: str, approval: Approval) -> None:
        """Send it, and see it taken by a status of 200 to 299.

        Raises:
            NotDeliveredError: it was not.
        """
        try:
            key = signing_key(await self._secrets.read_secret(self._receiver.secret))
        except (SecretUnavailableError, SecretUnfitError) as exc:
            raise NotDeliveredError("secret", f"the secret {self._receiver.secret} can't be used: {exc}") from exc
        request = await asyncio.to_thread(self._request, key, message_id, approval)
        try:
            async with self._broker.request(request, self._access, _ORIGIN) as response:
                status = response.status
        except EgressError as exc:
            raise NotDeliveredError(exc.reason.value, exc.message) from exc
        if not _OK <= status < _MULTIPLE_CHOICES:
            raise NotDeliveredError("status", f"it answered {status}")

    def _request(self, key: bytes, message_id: str, approval: Approval) -> EgressRequest:
        body = requested_message(approval)
        # The clock of the world: the receiver holds it against its own.
        timestamp_s = int(time.time())
        headers = (
            ("content-type", "application/json"),
            ("webhook-id", message_id),
            ("webhook-timestamp", str(timestamp_s)),
            ("webhook-signature", sign(key, message_id, timestamp_s, body)),
        )
        return EgressRequest("POST", self._receiver.url, headers, body)


def _no_event(event: EgressEvent) -> None:
    """The sidecar's own requests are no plugin's: the sender counts and logs them."""


__all__ = ["MAX_MESSAGE_BYTES", "POST_S", "NotDeliveredError", "ReceiverClient"]
