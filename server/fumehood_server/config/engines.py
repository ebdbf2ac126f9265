"""`[[engine]]` and `[orchestration]`: which models there are, who speaks for them, and what runs may use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from fumehood_server.config.config_file import ConfigFile, PluginTable
from fumehood_server.config.engine_tables import Constraint, EngineTable, GrammarDialect, OrchestrationTable, Provider
from fumehood_server.config.secrets import granted_secrets
from fumehood_server.config.toml_source import Key, TomlSource
from fumehood_server.model.extras import install_command
from fumehood_server.model.nearest import nearest
from fumehood_server.secrets import SecretSource

MAX_GRAMMAR_BYTES = 64 * 1024
"""A grammar of this size takes a server seconds to compile."""

_DEFAULT_URLS = {
    Provider.OPENAI: "https://api.openai.com/v1",
    Provider.ANTHROPIC: "https://api.anthropic.com",
}
_MODULES = {Provider.OPENAI: "openai", Provider.ANTHROPIC: "anthropic"}
_GRAMMAR_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VISIBLE = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One `[[engine]]`."""

    name: str
    provider: Provider
    model: str
    base_url: str
    """Of the API, without a slash at its end."""
    is_default_url: bool = False
    """Whether it is the provider's own service."""
    secret: str = ""
    """Name of the secret that is its key. Empty: it needs none."""
    timeout_s: float = 120.0
    """Of one answer, from its request to its end."""
    max_concurrent: int = 8
    """Requests at a time."""
    attempts: int = 3
    """Of one inference, the first one included."""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    """Of one answer, where the request says nothing."""
    context_tokens: int | None = None
    """That the model's context holds. None: not known."""
    input_price: float = 0.0
    """Of a million tokens."""
    output_price: float = 0.0
    constrains: frozenset[Constraint] = frozenset()
    grammar_dialect: GrammarDialect | None = None

    def cost(self, given: int, written: int) -> float:
        """What so many tokens cost, in the unit of the prices."""
        return (given * self.input_price + written * self.output_price) / 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestrationConfig:
    """`[orchestration]`. A cap of None is none."""

    engine: str = ""
    """Name of the one that is asked where the request names none. Empty: there is no engine."""
    max_runs: int = 64
    """Runs at a time; more are refused."""
    max_iterations: int = 20
    """The most that a request may ask for."""
    timeout_s: float = 600.0
    """Likewise."""
    max_tokens: int | None = None
    """Of a run, those of all its inferences together."""
    max_cost: float | None = None
    max_tool_calls: int | None = None
    vendor_options: bool = False
    """Whether requests may have any."""
    grammars: Mapping[str, str] = field(default_factory=dict)
    """Texts by name."""
    history_messages: int = 200
    """Of a session, that a run is given."""
    history_bytes: int = 256 * 1024


def read_engines(
    file: ConfigFile, source: TomlSource, *, secrets: Mapping[str, SecretSource]
) -> tuple[EngineConfig, ...]:
    """The engines, checked against the secrets that they name, and against what is installed.

    Raises:
        ConfigError: one can't be used.
    """
    found: list[EngineConfig] = []
    for index, table in enumerate(file.engine):
        key = ("engine", index)
        if any(each.name == table.name for each in found):
            problem = f'two [[engine]] have the name "{table.name}"'
            raise source.problem((*key, "name"), problem, "rename one: requests name an engine by it")
        _check_installed(table, key, source)
        _check_secret(table, key, file, source, secrets)
        _check_grammar(table, key, source)
        found.append(
            EngineConfig(
                name=table.name,
                provider=table.provider,
                model=table.model,
                base_url=_base_url(table, key, source),
                is_default_url=table.base_url is None,
                secret=table.secret or "",
                timeout_s=table.timeout_s,
                max_concurrent=table.max_concurrent,
                attempts=table.attempts,
                temperature=table.temperature,
                top_p=table.top_p,
                max_tokens=table.max_tokens,
                context_tokens=table.context_tokens,
                input_price=table.input_price,
                output_price=table.output_price,
                constrains=frozenset(table.constrains),
                grammar_dialect=table.grammar_dialect,
            )
        )
    return tuple(found)


_NONE = "write [[engine]] with its `name`, `provider` and `model`"


def read_orchestration(
    table: OrchestrationTable, source: TomlSource, folder: Path, *, engines: Sequence[EngineConfig]
) -> OrchestrationConfig:
    """The table, with the texts of its grammars.

    Raises:
        ConfigError: it names an engine that there is none of, or a grammar can't be read.
    """
    names = [each.name for each in engines]
    if table.engine is not None and table.engine not in names:
        problem = f'there is no [[engine]] "{table.engine}" for `engine` in [orchestration]'
        raise source.problem(("orchestration", "engine"), problem, nearest(table.engine, names) if names else _NONE)
    return OrchestrationConfig(
        engine=table.engine or (names[0] if names else ""),
        max_runs=table.max_runs,
        max_iterations=table.max_iterations,
        timeout_s=table.timeout_s,
        max_tokens=table.max_tokens,
        max_cost=table.max_cost,
        max_tool_calls=table.max_tool_calls,
        vendor_options=table.vendor_options,
        grammars={name: _grammar(name, path, source, folder) for name, path in table.grammars.items()},
        history_messages=table.history_messages,
        history_bytes=table.history_bytes,
    )


def check_granted(plugins: Sequence[PluginTable], source: TomlSource, engines: Sequence[EngineConfig]) -> None:
    """Check the engines that plugins are granted.

    Raises:
        ConfigError: there is none of that name.
    """
    names = [each.name for each in engines]
    for index, plugin in enumerate(plugins):
        if plugin.engine is not None and plugin.engine not in names:
            problem = f'there is no [[engine]] "{plugin.engine}" for `engine` in [[plugin]]'
            hint = nearest(plugin.engine, names) if names else _NONE
            raise source.problem(("plugin", index, "engine"), problem, hint)


def grammar_files(table: OrchestrationTable, folder: Path) -> tuple[Path, ...]:
    """The files of grammars: no plugin may be granted one for writing."""
    return tuple(folder / each for each in table.grammars.values() if "\0" not in each)


def _check_installed(table: EngineTable, key: Key, source: TomlSource) -> None:
    missing = [each for each in ("pydantic_ai", _MODULES[table.provider]) if find_spec(each) is None]
    if missing:
        problem = f'the engine "{table.name}" takes the package {missing[0]}, which is not installed'
        raise source.problem((*key, "provider"), problem, install_command("orchestration"))


def _check_secret(
    table: EngineTable, key: Key, file: ConfigFile, source: TomlSource, secrets: Mapping[str, SecretSource]
) -> None:
    """Refuse a key that isn't there, and one that plugins are handed."""
    if table.secret is None:
        if table.base_url is None:
            problem = f'the engine "{table.name}" has no `secret`, and its provider answers nobody without a key'
            raise source.problem(key, problem, "write [secrets.NAME] with the key, and name it")
        return
    if table.secret not in secrets:
        problem = f'there is no secret "{table.secret}" for `secret` in [[engine]]'
        hint = (
            nearest(table.secret, secrets)
            if secrets
            else f'write [secrets.{table.secret}] with file = "path" or env = "VARIABLE"'
        )
        raise source.problem((*key, "secret"), problem, hint)
    for place, granted in granted_secrets(file):
        if granted == table.secret:
            who = f"the tool {place[3]}" if "tools" in place else "each tool of a plugin"
            problem = f'the secret "{table.secret}" is handed to {who}, and is the key of the engine "{table.name}"'
            raise source.problem(place[:-1], problem, "a plugin never gets an engine's key: use another secret")


def _check_grammar(table: EngineTable, key: Key, source: TomlSource) -> None:
    wants = Constraint.GRAMMAR in table.constrains
    if wants and table.grammar_dialect is None:
        problem = f'the engine "{table.name}" constrains by grammar, and `grammar_dialect` is missing in [[engine]]'
        hint = f"write one of {', '.join(f'{each.value!r}' for each in GrammarDialect)}".replace("'", '"')
        raise source.problem((*key, "constrains"), problem, hint)
    if not wants and table.grammar_dialect is not None:
        problem = '`grammar_dialect` is for `constrains = ["grammar"]`, which the engine has not'
        raise source.problem((*key, "grammar_dialect"), problem, "add it, or remove the dialect")
    if table.grammar_dialect is not None and table.provider is not Provider.OPENAI:
        problem = f'the provider "{table.provider}" takes no grammar'
        raise source.problem((*key, "grammar_dialect"), problem, f'grammars are for provider "{Provider.OPENAI}"')


def _base_url(table: EngineTable, key: Key, source: TomlSource) -> str:
    if table.base_url is None:
        return _DEFAULT_URLS[table.provider]
    text, key, hint = table.base_url, (*key, "base_url"), 'write "https://HOST/v1"'
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    usable = _VISIBLE.fullmatch(text) and "\\" not in text and host and port != 0
    if not usable or parts.scheme not in {"https", "http"}:
        raise source.problem(key, "`base_url` in [[engine]] is no URL of https or http with a host", hint)
    if parts.username is not None or parts.password is not None:
        raise source.problem(key, "`base_url` in [[engine]] has user information", "name the key as `secret`")
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise source.problem(key, "`base_url` in [[engine]] has a query or a fragment", hint)
    if parts.scheme == "http" and not table.allow_plaintext and not _is_loopback(host or ""):
        problem = "`base_url` in [[engine]] is http: whoever is on the way reads all messages, and the key"
        raise source.problem(key, problem, 'write "https://…", or `allow_plaintext = true` if the way is yours alone')
    return text.rstrip("/")


def _is_loopback(host: str) -> bool:
    """Whether it can't leave this machine. `localhost` can't by RFC 6761, section 6.3."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _grammar(name: str, path: str, source: TomlSource, folder: Path) -> str:
    key = ("orchestration", "grammars", name)
    if not _GRAMMAR_NAME.fullmatch(name):
        hint = "1 to 64 of A-Z, a-z, 0-9, ., _ and -, starting with a letter or a digit"
        raise source.problem(key, f'"{name[:80]}" can\'t be the name of a grammar', hint)
    try:
        file = folder / path
        if not file.exists():
            raise source.problem(key, f'the grammar "{name}" is in "{file}", which is not there', "name a file of GBNF")
        data = file.read_bytes() if file.is_file() and file.stat().st_size <= MAX_GRAMMAR_BYTES else None
        text = None if data is None else data.decode()
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8, or the path has a NUL"
        raise source.problem(key, f'the grammar "{name}" can\'t be read: {reason}', "name a file of GBNF") from exc
    if text is None:
        problem = f'the grammar "{name}" is no regular file of at most {MAX_GRAMMAR_BYTES} bytes'
        raise source.problem(key, problem, "name a file of GBNF")
    return text


__all__ = [
    "Constraint",
    "EngineConfig",
    "GrammarDialect",
    "OrchestrationConfig",
    "Provider",
    "grammar_files",
    "read_engines",
    "read_orchestration",
]
