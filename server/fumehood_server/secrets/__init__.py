"""Secrets: read from files or the environment, given to tools that are granted them, redacted from their output."""

from fumehood_server.secrets.redactor import Redactor
from fumehood_server.secrets.source import SecretSource, SecretUnavailableError
from fumehood_server.secrets.store import SecretStore

__all__ = ["Redactor", "SecretSource", "SecretStore", "SecretUnavailableError"]
