"""Webhooks (Standard Webhooks) for approvals: sends those that are asked for, and takes signed decisions."""

from fumehood_server.webhook.running import open_webhook
from fumehood_server.webhook.signature import SecretUnfitError, signing_key

__all__ = ["SecretUnfitError", "open_webhook", "signing_key"]
