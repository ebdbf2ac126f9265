"""Secrets: read where the operator keeps them, handed to the tools that he granted them, taken out of what is said."""

from fumehood_server.secrets.redactor import Redactor
from fumehood_server.secrets.source import SecretSource, SecretUnavailableError
from fumehood_server.secrets.store import SecretStore

__all__ = ["Redactor", "SecretSource", "SecretStore", "SecretUnavailableError"]
