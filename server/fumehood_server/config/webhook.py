"""`[approvals.webhook]`: where approvals are sent, and where signed decisions come in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fumehood_server.config.callers import CallerConfig
from fumehood_server.config.config_file import ConfigFile, JournalStore, WebhookTable
from fumehood_server.config.egress import read_private
from fumehood_server.config.listen import Listen, ListenError, parse_listen
from fumehood_server.config.secrets import granted_secrets
from fumehood_server.config.toml_source import TomlSource
from fumehood_server.egress import EgressRefusedError, HostEntry, parse_private, parse_url
from fumehood_server.egress.addresses import why_not_public
from fumehood_server.egress.private import PrivateAddress
from fumehood_server.egress.url import Url
from fumehood_server.model.nearest import nearest
from fumehood_server.secrets import SecretSource

_TABLE = ("approvals", "webhook")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """Where each approval that is asked for is sent."""

    url: str
    """https, or http to a loopback address."""
    authority: HostEntry
    """Its host and port."""
    secret: str
    """Name of the secret that signs."""
    private: tuple[str, ...] = ()
    """Private addresses that it may be at, as `allow_private` has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """Where signed decisions come in, and as whom."""

    listen: Listen
    """Local: there is no TLS of its own."""
    secret: str
    """Name of the secret that decisions are signed with."""
    caller: str
    """Name of the `[[caller]]` that decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """`[approvals.webhook]`. One of both is there."""

    receiver: Receiver | None = None
    replies: Replies | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of those that it takes."""
        return tuple(each.secret for each in (self.receiver, self.replies) if each is not None)


def read_webhook(
    file: ConfigFile, source: TomlSource, *, secrets: Mapping[str, SecretSource], callers: Sequence[CallerConfig]
) -> WebhookConfig | None:
    """The table, checked against the secrets and callers that it names. None: there is none.

    Raises:
        ConfigError: it can't be honoured.
    """
    table = file.approvals.webhook
    if table is None:
        return None
    if file.journal.store == JournalStore.OFF:
        problem = '[approvals.webhook] needs a journal, and [journal] has `store = "off"`: no approval is kept'
        raise source.problem(_TABLE, problem, "keep a journal, or remove the table")
    receiver, replies = _receiver(table, source), _replies(table, source, callers)
    if receiver is None and replies is None:
        raise source.problem(_TABLE, "[approvals.webhook] names neither `url` nor `listen`", _BOTH)
    _check_secrets(table, file, source, secrets)
    return WebhookConfig(receiver=receiver, replies=replies)


_BOTH = "`url` and `secret` send approvals out; `listen`, `reply_secret` and `caller` let decisions in"


def _receiver(table: WebhookTable, source: TomlSource) -> Receiver | None:
    if not _all_or_none(table, source, "url", "secret"):
        if table.allow_private:
            raise source.problem((*_TABLE, "allow_private"), "`allow_private` is for `url`, which is missing", _BOTH)
        return None
    private = read_private(table.allow_private, (*_TABLE, "allow_private"), source)
    url = _url(table.url or "", source, {parse_private(each) for each in private})
    return Receiver(url=str(url), authority=HostEntry(url.host, url.port), secret=table.secret or "", private=private)


def _url(text: str, source: TomlSource, private: set[PrivateAddress]) -> Url:
    key = (*_TABLE, "url")
    try:
        url = parse_url(text)
    except EgressRefusedError as exc:
        raise source.problem(key, f"`url` can't be used: {exc.message}", 'write "https://HOST/PATH"') from exc
    address = url.host.address
    what = "" if address is None else why_not_public(address)
    if address is not None and what and PrivateAddress(address) not in private:
        problem = f"`url` is for {address}, which is {what}"
        raise source.problem(key, problem, f'write `allow_private = ["{address}"]` if that is meant')
    if url.scheme != "https" and (address is None or not address.is_loopback):
        problem = "`url` is http: whoever is on the way could read the arguments of calls"
        raise source.problem(key, problem, 'write "https://…"; http is for 127.0.0.1 and [::1] alone')
    return url


def _replies(table: WebhookTable, source: TomlSource, callers: Sequence[CallerConfig]) -> Replies | None:
    if not _all_or_none(table, source, "listen", "reply_secret", "caller"):
        return None
    try:
        listen = parse_listen(table.listen or "", source.path.parent)
    except ListenError as exc:
        raise source.problem((*_TABLE, "listen"), exc.problem, exc.hint) from exc
    if not listen.is_local:
        problem = f'"{table.listen}" can be reached from other machines, and decisions come in without TLS'
        hint = "listen on 127.0.0.1 or a unix socket, and put a proxy that ends TLS before it"
        raise source.problem((*_TABLE, "listen"), problem, hint)
    caller = next((each for each in callers if each.name == table.caller), None)
    if caller is None:
        problem = f'there is no [[caller]] "{table.caller}" for `caller` in [approvals.webhook]'
        names = {each.name for each in callers}
        hint = nearest(table.caller or "", names) if names else 'write [[caller]] with its `name` and `approve = ["…"]`'
        raise source.problem((*_TABLE, "caller"), problem, hint)
    if not caller.approve:
        problem = f'the [[caller]] "{caller.name}" may approve nothing, and decides for [approvals.webhook]'
        raise source.problem((*_TABLE, "caller"), problem, 'give it `approve = ["TOOL"]`')
    return Replies(listen=listen, secret=table.reply_secret or "", caller=caller.name)


def _all_or_none(table: WebhookTable, source: TomlSource, *keys: str) -> bool:
    given = [key for key in keys if getattr(table, key) is not None]
    if given and len(given) < len(keys):
        missing = next(key for key in keys if key not in given)
        raise source.problem((*_TABLE, given[0]), f"`{missing}` is missing in [approvals.webhook]", _BOTH)
    return bool(given)


def _check_secrets(
    table: WebhookTable, file: ConfigFile, source: TomlSource, secrets: Mapping[str, SecretSource]
) -> None:
    """Refuse a secret that isn't there, that plugins are handed, or that signs both ways."""
    for key in ("secret", "reply_secret"):
        name = getattr(table, key)
        if name is None:
            continue
        if name not in secrets:
            problem = f'there is no secret "{name}" for `{key}` in [approvals.webhook]'
            hint = (
                nearest(name, secrets) if secrets else f'write [secrets.{name}] with file = "path" or env = "VARIABLE"'
            )
            raise source.problem((*_TABLE, key), problem, hint)
        for place, granted in granted_secrets(file):
            if granted == name:
                who = f"the tool {place[3]}" if "tools" in place else "each tool of a plugin"
                problem = f'the secret "{name}" is handed to {who}, which could sign with it as [approvals.webhook]'
                raise source.problem(place[:-1], problem, "use another secret for one of them")
    if table.secret is not None and table.secret == table.reply_secret:
        problem = "`secret` and `reply_secret` in [approvals.webhook] are the same one"
        raise source.problem((*_TABLE, "reply_secret"), problem, "each way has a secret of its own")


__all__ = ["Receiver", "Replies", "WebhookConfig", "read_webhook"]
