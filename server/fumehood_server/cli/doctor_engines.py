"""What `fumehood doctor` says of engines: which there are, and whether their keys can be read. None is asked."""

from __future__ import annotations

from collections.abc import Iterator

from fumehood_server.cli.doctor_callers import CallerFinding
from fumehood_server.config import SidecarConfig
from fumehood_server.config.engines import EngineConfig
from fumehood_server.secrets import SecretUnavailableError


def engine_findings(config: SidecarConfig) -> Iterator[CallerFinding]:
    """One for each engine of the configuration. Its libraries were looked for when that was read."""
    for engine in config.engines:
        yield _finding(config, engine, is_default=engine.name == config.orchestration.engine)


def _finding(config: SidecarConfig, engine: EngineConfig, *, is_default: bool) -> CallerFinding:
    feature = f"engine {engine.name}"
    what = f"{engine.model} at {engine.base_url}{', the default' if is_default else ''}"
    if not engine.secret:
        return CallerFinding(feature, "ok", f"{what}; asked without a key")
    source = config.secrets[engine.secret]
    try:
        source.read_value()
    except SecretUnavailableError as error:
        # A variable may well be set where the sidecar is started, and not here.
        status = "note" if source.variable else "missing"
        return CallerFinding(feature, status, f"{what}; its key can't be read: {error.problem}", error.remedy)
    return CallerFinding(feature, "ok", f"{what}; its key can be read")
