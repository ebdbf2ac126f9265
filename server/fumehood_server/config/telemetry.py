"""`[telemetry]`, converted."""

from __future__ import annotations

from urllib.parse import urlsplit

from fumehood_server.config.config_file import TelemetryTable
from fumehood_server.config.egress import read_granted
from fumehood_server.config.listen import Listen, ListenError, parse_listen
from fumehood_server.config.toml_source import TomlSource
from fumehood_server.telemetry import TelemetrySettings

_TABLE = ("telemetry",)


def read_telemetry(table: TelemetryTable, source: TomlSource) -> TelemetrySettings:
    """The table's settings.

    Raises:
        ConfigError: an address can't be used.
    """
    listen = _listen(table, source)
    if table.otlp_endpoint is not None:
        _check_endpoint(table.otlp_endpoint, source)
    return TelemetrySettings(
        prometheus=None if listen is None else (listen.host, listen.port),
        otlp_endpoint=table.otlp_endpoint or "",
        service_name=table.service_name,
        traces_sample_ratio=table.traces_sample_ratio,
        metrics_interval_s=table.metrics_interval_s,
        propagate_to=read_granted(table.propagate_to, (*_TABLE, "propagate_to"), source),
    )


def _listen(table: TelemetryTable, source: TomlSource) -> Listen | None:
    if table.prometheus is None:
        return None
    key, hint = (*_TABLE, "prometheus"), 'write "127.0.0.1:9464"'
    try:
        listen = parse_listen(table.prometheus, source.path.parent)
    except ListenError as exc:
        raise source.problem(key, exc.problem, hint) from exc
    if listen.path is not None:
        raise source.problem(key, "metrics are served over TCP alone", hint)
    if not listen.is_local:
        problem = f'"{table.prometheus}" can be reached from other machines, and metrics are served to whoever asks'
        raise source.problem(key, problem, hint)
    if not listen.port:
        raise source.problem(key, "port 0 is none that a scraper could know", hint)
    return listen


def _check_endpoint(text: str, source: TomlSource) -> None:
    key, hint = (*_TABLE, "otlp_endpoint"), 'write "http://HOST:4317", or https'
    try:
        parts = urlsplit(text)
        complete = parts.scheme in {"http", "https"} and parts.hostname and parts.port
    except ValueError:
        complete = None
        parts = None
    if not complete or parts is None or parts.path.strip("/") or parts.query or parts.fragment:
        raise source.problem(key, f'"{text[:80]}" is no URL of a scheme, a host and a port alone', hint)
    if parts.username is not None or parts.password is not None:
        problem = "it has a password in it; OTEL_EXPORTER_OTLP_HEADERS is read for credentials"
        raise source.problem(key, problem, hint)


__all__ = ["read_telemetry"]
