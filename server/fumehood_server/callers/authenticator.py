"""Authentication: which caller a request comes from, by its token, its certificate or its address."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from fumehood_server.callers.rules import CallerRules
from fumehood_server.callers.token_store import TokenStore
from fumehood_server.config.listen import Listen
from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.caller import Authentication, Caller

_SCHEME = "bearer "
"""Of an `authorization` header (RFC 6750), in any case of letters (RFC 9110)."""


class Presented(NamedTuple):
    """What a request shows of who sends it. No dataclass: one is made for each request, in a fifth of the time."""

    connection: str
    """The peer, as gRPC names it."""
    authorization: Sequence[str | bytes] = ()
    """Every `authorization` of its metadata."""
    certificate_names: Sequence[str] = ()
    """Subject alternative names and common name of a certificate that the authority vouches for."""
    certificate_expires: float = 0.0
    """When that certificate does: POSIX time in seconds. TLS itself has looked when the connection began."""


class Authenticator:
    """Says who sends a request that came by one address. For one event loop.

    A token is looked at first, then the certificate, then what the address says of whoever comes by it. What is shown
    and doesn't hold is refused, and never overlooked in favour of the next.
    """

    __slots__ = ("_anonymous", "_authentication", "_last", "_listen", "_rules", "_tokens")

    def __init__(self, rules: CallerRules, tokens: TokenStore, listen: Listen, *, allow_anonymous: bool) -> None:
        """`allow_anonymous`: whether TCP on loopback takes callers that show nothing."""
        self._rules = rules
        self._tokens = tokens
        self._listen = listen
        self._authentication = Authentication.NONE if listen.path is None else Authentication.PEER
        self._last = Caller()
        self._anonymous = listen.path is not None or (allow_anonymous and listen.is_local)

    @property
    def address(self) -> str:
        """That which it is for, as gRPC writes it."""
        return self._listen.target

    @classmethod
    def of_mcp(cls, rules: CallerRules, tokens: TokenStore, listen: Listen, *, allow_anonymous: bool) -> Authenticator:
        """For the socket by which the sidecar's own MCP server passes its clients' requests on.

        Who shows nothing there is as unknown as over TCP: the socket's mode has let the server in, and not its client.
        """
        made = cls(rules, tokens, listen, allow_anonymous=allow_anonymous)
        made._authentication = Authentication.NONE
        made._anonymous = allow_anonymous
        return made

    def identify(self, presented: Presented) -> Caller:
        """The caller, by the tokens and rules of this moment.

        Raises:
            RefusedError: nobody is known by what it shows (UNAUTHENTICATED).
        """
        if presented.authorization:
            return Caller(
                name=self._name_of_token(presented.authorization),
                authenticated_by=Authentication.TOKEN,
                connection=presented.connection,
            )
        if presented.certificate_names and time.time() >= presented.certificate_expires:
            raise _refused("certificate_expired", "the certificate has expired since the connection began")
        names = self._rules.of_certificate(presented.certificate_names)
        if len(names) == 1:
            return Caller(
                name=next(iter(names)),
                authenticated_by=Authentication.CERTIFICATE,
                connection=presented.connection,
            )
        if names:
            raise _refused("certificate_ambiguous", "the certificate has names of more than one caller")
        if presented.certificate_names:
            raise _refused("certificate_unknown", "no caller is known by a name of this certificate")
        if not self._anonymous:
            text = "this sidecar serves callers that it knows: send `authorization: Bearer TOKEN`"
            raise _refused("credentials_missing", text)
        name, last = self._rules.of_address(self._listen), self._last
        if last.connection == presented.connection and last.name == name:  # as all of a unix socket's are
            return last
        self._last = Caller(name=name, authenticated_by=self._authentication, connection=presented.connection)
        return self._last

    def _name_of_token(self, authorization: Sequence[str | bytes]) -> str:
        if len(authorization) > 1:
            raise _refused("authorization_malformed", "the request has more than one `authorization`")
        text = authorization[0]
        if isinstance(text, bytes) or text[: len(_SCHEME)].lower() != _SCHEME:
            raise _refused("authorization_malformed", "`authorization` is to be `Bearer TOKEN`")
        token, problem = self._tokens.find(text[len(_SCHEME) :].strip())
        if token is None:
            said = "this token has expired" if problem == "expired" else "no such token is known, or it was revoked"
            raise _refused(f"token_{problem}", said)
        if not self._rules.knows(token.caller):
            raise _refused(
                "caller_unknown", f'the token is of caller "{token.caller}", whom the operator names no more'
            )
        return token.caller


def _refused(problem: str, message: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.UNAUTHENTICATED, message, {"problem": problem}))
