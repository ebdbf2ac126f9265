"""The webhook of a sidecar while it serves: `[approvals.webhook]`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from fumehood_server.config.config import CONFIG_NAME, SidecarConfig
from fumehood_server.config.webhook import WebhookConfig
from fumehood_server.egress import import_broker
from fumehood_server.errors import ConfigError
from fumehood_server.model.caller import CallerRights
from fumehood_server.policy import ApprovalDesk, Decisions
from fumehood_server.secrets import SecretStore, SecretUnavailableError
from fumehood_server.telemetry import get_logger
from fumehood_server.telemetry.metrics import SidecarMetrics
from fumehood_server.webhook.signature import SecretUnfitError, signing_key


@contextlib.asynccontextmanager
async def open_webhook(
    config: SidecarConfig,
    desk: ApprovalDesk | None,
    rights: CallerRights,
    metrics: SidecarMetrics | None,
    on_bound: Callable[[tuple[str, ...]], None] = lambda _: None,
) -> AsyncIterator[None]:
    """Send approvals, and take decisions, for the length of the block, as far as the configuration names them.

    `on_bound` is told the addresses that decisions come in at, as HOST:PORT or unix:PATH.

    Raises:
        ConfigError: one of its secrets can't be read, or is no key.
        ListenFailedError: its address can't be had.
    """
    webhook = config.approvals.webhook
    if webhook is None or desk is None:
        yield
        return
    secrets = SecretStore(config.secrets)
    await _check_secrets(webhook, secrets, config.path or config.folder / CONFIG_NAME)
    await asyncio.to_thread(import_broker)
    # Here, so that a sidecar without a webhook pays for none of it.
    from fumehood_server.webhook.decision_endpoint import PATH, DecisionEndpoint  # noqa: PLC0415
    from fumehood_server.webhook.delivery_log import DeliveryLog  # noqa: PLC0415
    from fumehood_server.webhook.http_server import serving_http  # noqa: PLC0415
    from fumehood_server.webhook.receiver import ReceiverClient  # noqa: PLC0415
    from fumehood_server.webhook.sender import ApprovalSender  # noqa: PLC0415

    async with contextlib.AsyncExitStack() as stack:
        replies, receiver = webhook.replies, webhook.receiver
        if replies is not None:
            endpoint = DecisionEndpoint(Decisions(desk, rights), replies, secrets, metrics)
            address = await stack.enter_async_context(serving_http(replies.listen, endpoint.answer, endpoint.refuse))
            on_bound((address,))
            get_logger().info("webhook_listening", address=address, path=PATH, caller=replies.caller)
        if receiver is not None:
            log = DeliveryLog(str(receiver.authority), metrics)
            await stack.enter_async_context(ApprovalSender(desk, ReceiverClient(receiver, secrets), log))
        yield


async def _check_secrets(webhook: WebhookConfig, secrets: SecretStore, path: Path) -> None:
    for name in webhook.secrets:
        hint = f"use 24 bytes or more in [secrets.{name}], or whsec_ with their Base64"
        try:
            signing_key(await secrets.read_secret(name))
        except SecretUnavailableError as exc:
            raise ConfigError(path, exc.problem, key="approvals.webhook", hint=exc.remedy) from exc
        except SecretUnfitError as exc:
            problem = f"the secret {name} can't sign for [approvals.webhook]: {exc}"
            raise ConfigError(path, problem, key="approvals.webhook", hint=hint) from exc


__all__ = ["open_webhook"]
