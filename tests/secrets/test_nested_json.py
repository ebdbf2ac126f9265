"""Secrets in JSON text that stands within JSON, as a tool leaves it in what it says."""

from __future__ import annotations

import html
import json
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from fumehood.v1 import plugin_service_pb2
from fumehood_server.secrets import Redactor

from tests.rpc.support import BOUND_S, ToolClient, text_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin

pytestmark = pytest.mark.promise("S811")

VALUE = 'k3y&with<html>/and+"quo\\té'
OTHER = 'an0ther&value<of>/a+"lik\\é'
"""Of the same signs, and no secret."""
CODE = """
import json
import sys
from typing import Any

from fumehood_sdk import Context, Plugin, ToolError

plugin = Plugin("nester", version="1.0.0")


def nested(value: str) -> str:
    return json.dumps({"headers": {"authorization": "Bearer " + value}})


@plugin.tool(side_effects="none", requires=["secret:TOKEN"])
def as_text(ctx: Context, other: str = "") -> str:
    \"\"\"Returns JSON text.\"\"\"
    return nested(other or ctx.secret("TOKEN"))


@plugin.tool(side_effects="none", requires=["secret:TOKEN"])
def as_value(ctx: Context, other: str = "") -> dict[str, str]:
    \"\"\"Returns JSON text as a value.\"\"\"
    return {"config": nested(other or ctx.secret("TOKEN"))}


@plugin.tool(side_effects="none", requires=["secret:TOKEN"])
def fails(ctx: Context, other: str = "") -> str:
    \"\"\"Fails with JSON text in its details.\"\"\"
    raise ToolError("it said no", details={"body": nested(other or ctx.secret("TOKEN"))})


@plugin.tool(side_effects="none", requires=["secret:TOKEN"])
def logs(ctx: Context, other: str = "") -> str:
    \"\"\"Logs JSON text as a field, and prints a document that holds it.\"\"\"
    text = nested(other or ctx.secret("TOKEN"))
    ctx.log.info("configured", config=text)
    print(json.dumps({"printed": text}), flush=True)
    ctx.log.info("the end" + other[:3])
    return "done"
"""
TOOLS = ("as_text", "as_value", "fails", "logs")


def go(text: str) -> str:
    """As Go's encoding/json writes a string."""
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


WRITERS: dict[str, Callable[[str], str]] = {
    "JSON in JSON": lambda value: json.dumps(json.dumps({"a": value})),
    "JSON in JSON, not ASCII": lambda value: json.dumps(json.dumps({"a": value}, ensure_ascii=False)),
    "JSON in JSON in JSON": lambda value: json.dumps(json.dumps(json.dumps({"a": value}))),
    "Go's in JSON": lambda value: json.dumps({"body": go(value)}),
    "JSON in Go's": lambda value: go(json.dumps({"a": value})),
    "HTML in JSON": lambda value: json.dumps(html.escape(value)),
    "a repr in JSON": lambda value: json.dumps(repr({"a": value})),
    "a repr in JSON, not ASCII": lambda value: json.dumps(repr({"a": value}), ensure_ascii=False),
}


def test_a_value_is_taken_out_of_json_within_json_and_what_is_left_is_json() -> None:
    redactor = Redactor()
    redactor.learn("TOKEN", VALUE.encode())
    left = {name: redactor.text(write(VALUE)) for name, write in WRITERS.items()}
    assert {name: text for name, text in left.items() if "[secret TOKEN]" not in text or "k3y" in text} == {}
    for text in left.values():
        json.loads(text)
    others = {name: write(OTHER) for name, write in WRITERS.items()}
    assert {name: redactor.text(text) for name, text in others.items()} == others


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("nester")
    (folder / "token").write_text(VALUE)
    (folder / "token").chmod(0o600)
    grants = "\n".join(f'[plugin.tools.{each}]\nsecrets = ["TOKEN"]' for each in TOOLS)
    secrets = f'[secrets.TOKEN]\nfile = "{folder / "token"}"\n'
    with running_sidecar([(write_plugin(folder / "plugin", "nester", CODE), grants)], more=secrets) as sidecar:
        yield sidecar


@pytest.fixture
async def client(sidecar: Sidecar) -> AsyncIterator[ToolClient]:
    async with sidecar.channel() as channel:
        yield ToolClient(sidecar, channel)


@pytest.mark.parametrize("tool", ["as_text", "as_value", "fails"])
async def test_no_result_has_a_secret_in_json_text(client: ToolClient, tool: str) -> None:
    result = await client.call(tool)
    said = f"{text_of(result)} {result.details_json} {result.error.message} {result.error.details_json}"
    assert "[secret TOKEN]" in said
    assert "k3y" not in said
    assert "quo" not in said
    shown = result.details_json or result.error.details_json
    assert "[secret TOKEN]" in shown
    control = await client.call(tool, other=OTHER)
    told = control.details_json or control.error.details_json
    assert "an0ther" in told
    assert "lik" in told
    assert "[secret" not in told


async def test_no_log_line_has_a_secret_in_json_text(client: ToolClient) -> None:
    assert (await client.call("logs")).error.code == ""
    assert (await client.call("logs", other=OTHER)).error.code == ""
    lines: list[str] = []
    request = plugin_service_pb2.TailPluginLogsRequest(name="nester", lines=1000, follow=True)
    async for line in client.plugins.TailPluginLogs(request, timeout=BOUND_S):
        lines.append(f"{line.message} {line.fields_json}")
        if any("the endan0" in each for each in lines) and sum("printed" in each for each in lines) == 2:
            break
    assert [each for each in lines if "k3y" in each or "quo" in each] == []
    assert [sum(word in each for each in lines) for word in ("[secret TOKEN]", "an0ther")] == [2, 2]
