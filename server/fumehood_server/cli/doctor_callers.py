"""What `fumehood doctor` says of who may call: files of TLS, tokens, callers that nobody can be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from fumehood_server.callers.certificates import EXPIRES_SOON_S, CertificateError, read_certificates
from fumehood_server.callers.token_file import Token, TokenFileError, read_tokens
from fumehood_server.config import SidecarConfig
from fumehood_server.config.callers import TlsConfig

_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class CallerFinding:
    """One check and its outcome, as `doctor_report.Finding` has them."""

    feature: str
    status: str
    detail: str
    remedy: str = ""


def caller_findings(config: SidecarConfig) -> Iterator[CallerFinding]:
    """Of the configuration's callers. Nothing where there are none and no TLS."""
    if config.server.tls is not None:
        yield _tls(config.server.tls)
    if config.callers:
        yield from _tokens(config)
    elif config.server.allow_anonymous and any(each.path is None for each in config.server.listen):
        text = "any user of this machine may call over TCP on loopback (`allow_anonymous`)"
        yield CallerFinding("callers", "note", text, "name who may call: [[caller]], docs/callers.md")


def _tls(tls: TlsConfig) -> CallerFinding:
    try:
        files = read_certificates(tls)
    except CertificateError as error:
        return CallerFinding("tls", "missing", str(error), error.remedy)
    left_s, day = files.expires_in_s(), files.expires.date().isoformat()
    if left_s <= 0:
        return CallerFinding("tls", "missing", f"{files.expires_first}: has expired on {day}", "renew it")
    if left_s < EXPIRES_SOON_S:
        detail = f"{files.expires_first}: expires on {day}, in {left_s / _DAY_S:.0f} days"
        return CallerFinding("tls", "note", detail, "renew it; the sidecar takes it up by itself")
    return CallerFinding("tls", "ok", f"{tls.certificate}: valid until {day}")


def _tokens(config: SidecarConfig) -> Iterator[CallerFinding]:
    path = config.server.token_file
    try:
        tokens = read_tokens(path)
    except TokenFileError as error:
        yield CallerFinding("tokens", "missing", str(error), error.remedy)
        return
    now = time.time()
    names = {each.name for each in config.callers}
    held = [each for each in tokens if not each.has_expired(now) and each.caller in names]
    yield CallerFinding("tokens", "ok", f"{path}: {len(held)} of {len(tokens)} hold")
    yield from (_dead(each, now) for each in tokens if each not in held)
    with_token = {each.caller for each in held}
    for caller in config.callers:
        if caller.name not in with_token and not caller.certificate and caller.listen is None:
            detail = "has no token that holds, no certificate and no address, so that nobody can be it"
            yield CallerFinding(f"caller {caller.name}", "note", detail, f"`fumehood token add {caller.name}`")


def _dead(token: Token, now: float) -> CallerFinding:
    why = "has expired" if token.has_expired(now) else "is of a caller that fumehood.toml does not name"
    remedy = f"`fumehood token revoke {token.token_id}`"
    return CallerFinding(f"token {token.token_id}", "note", f"of {token.caller}: {why}", remedy)
