"""What the operator asks of telemetry, and the errors where it can't be had."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood_server.errors import FumehoodError


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Nothing asked for: nothing is imported and nothing recorded."""

    prometheus: tuple[str, int] | None = None
    """Loopback host and port of the scrape endpoint."""
    otlp_endpoint: str = ""
    """http or https URL of a collector that takes OTLP over gRPC."""
    service_name: str = "fumehood"
    traces_sample_ratio: float = 1.0
    metrics_interval_s: float = 15.0
    """Between two exports of the metrics by OTLP."""
    propagate_to: tuple[str, ...] = ()
    """Host entries in canonical form: requests of plugins to them carry `traceparent`."""

    @property
    def is_on(self) -> bool:
        """Whether anything is recorded."""
        return self.prometheus is not None or bool(self.otlp_endpoint)


class TelemetryMissingError(FumehoodError):
    """Telemetry is configured and its libraries aren't installed. The operator must install them, or not ask for it."""

    def __init__(self, module: str) -> None:
        """`module` is what could not be imported."""
        super().__init__(f"[telemetry] needs libraries that are not installed: there is no module {module}")
        self.module = module


class TelemetryListenError(FumehoodError):
    """The scrape endpoint's address can't be had. The operator must name another, or end what has it."""

    def __init__(self, address: str, problem: str) -> None:
        """Keep the address."""
        super().__init__(f"can't serve metrics at {address}: {problem}")
        self.address = address
