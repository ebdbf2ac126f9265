"""Authentication and authorisation of callers: bearer tokens, client certificates, the operator's rules."""

from fumehood_server.callers.authenticator import Authenticator, Presented
from fumehood_server.callers.certificates import CertificateError, CertificateFiles, expiry_of, read_certificates
from fumehood_server.callers.rules import CallerRules
from fumehood_server.callers.token_file import TokenFileError
from fumehood_server.callers.token_store import TokenStore

__all__ = [
    "Authenticator",
    "CallerRules",
    "CertificateError",
    "CertificateFiles",
    "Presented",
    "TokenFileError",
    "TokenStore",
    "expiry_of",
    "read_certificates",
]
