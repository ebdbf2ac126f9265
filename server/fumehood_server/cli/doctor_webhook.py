"""What `fumehood doctor` says of `[approvals.webhook]`: whether its secrets can be read, and are keys."""

from __future__ import annotations

from collections.abc import Iterator

from fumehood_server.cli.doctor_callers import CallerFinding
from fumehood_server.config import SidecarConfig
from fumehood_server.secrets import SecretUnavailableError
from fumehood_server.webhook import SecretUnfitError, signing_key


def webhook_findings(config: SidecarConfig) -> Iterator[CallerFinding]:
    """One for each of its secrets. One that can't be read has its own finding as any other has."""
    webhook = config.approvals.webhook
    for name in () if webhook is None else webhook.secrets:
        feature = f"webhook secret {name}"
        try:
            signing_key(config.secrets[name].read_value())
        except SecretUnavailableError as error:
            status = "note" if config.secrets[name].variable else "missing"
            yield CallerFinding(feature, status, f"[approvals.webhook] can't be served: {error.problem}", error.remedy)
        except SecretUnfitError as error:
            yield CallerFinding(feature, "missing", f"it can't sign: {error}", "make one: openssl rand -hex 32")
        else:
            yield CallerFinding(feature, "ok", "can be read, and signs")
