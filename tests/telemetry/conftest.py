"""A sidecar whose telemetry is on, with a plugin that has something to tell."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.orchestration.scripted import ScriptedModel, model_server, scripted_model
from tests.rpc.support import ToolClient
from tests.sidecar import Sidecar, running_sidecar, write_plugin
from tests.telemetry.collector import Collector, collecting, free_port
from tests.tool_requests.server import Web, serving

CODE = '''
from fumehood_sdk import Context, Plugin

plugin = Plugin("told", version="1.0.0")


@plugin.tool(side_effects="none", isolation="process")
def trace(ctx: Context) -> dict[str, str]:
    """Says which span it runs in."""
    return {"trace_id": ctx.correlation.trace_id, "span_id": ctx.correlation.span_id,
            "parent": ctx.correlation.parent_span_id,
            "traceparent": ctx.traceparent, "tracestate": ctx.tracestate}


@plugin.tool(side_effects="none", isolation="call")
def fail() -> str:
    """Fails."""
    raise ValueError("no")


@plugin.tool(side_effects="read", isolation="process")
def ask(url: str, ctx: Context) -> int:
    """Asks."""
    return ctx.http.get(url, headers={"traceparent": "the plugin's own"}).status
'''

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@dataclass
class Told(ToolClient):
    """The sidecar, where it is scraped, and who else hears of it."""

    port: int
    collector: Collector
    told: Web
    untold: Web

    def scrape(self) -> Samples:
        return scrape(self.port)


def scrape(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as response:
        text = response.read().decode()
    samples = (each for family in text_string_to_metric_families(text) for each in family.samples)
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plugin(tmp_path_factory.mktemp("told") / "told", "told", CODE)


@dataclass
class Place:
    """A running sidecar and what stands around it."""

    sidecar: Sidecar
    port: int
    collector: Collector
    told: Web
    untold: Web


@pytest.fixture(scope="module")
def place(plugin: Path, model_server: ScriptedModel) -> Iterator[Place]:
    with collecting() as collector, serving() as told, serving() as untold:
        port = free_port()
        more = (
            f'[telemetry]\nprometheus = "127.0.0.1:{port}"\notlp_endpoint = "{collector.url}"\nmetrics_interval_s = 1\n'
            f'propagate_to = ["{told.host}"]\n[egress]\nallow_private = ["127.0.0.1"]\n'
            f"{model_server.engine_table()}"
        )
        grants = f"hosts = {json.dumps([told.host, untold.host])}"
        with running_sidecar([(plugin, grants)], more=more) as sidecar:
            yield Place(sidecar, port, collector, told, untold)


@pytest.fixture
async def client(place: Place) -> AsyncIterator[Told]:
    async with place.sidecar.channel() as channel:
        yield Told(place.sidecar, channel, place.port, place.collector, place.told, place.untold)


__all__ = ["model_server", "scripted_model"]
