"""What goes on during calls, in both eras: progress, logging, cancellation, ids of calls, and changes of the tools."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest
from fumehood.v1 import plugin_service_pb2, plugin_service_pb2_grpc, tool_service_pb2, tool_service_pb2_grpc
from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.tool_changes import ToolChanges
from fumehood_server.mcp.tool_list import ToolList
from mcp import Client
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.types import LoggingMessageNotificationParams

from tests.sidecar import Sidecar, running_sidecar, write_plugin

from .stdio_process import receive, send, stdio_process
from .support import CODE, MODERN, MODES, error_of, http_client, modern, names, stdio_client, text_of, url_of

TABLE = '[mcp]\nlisten = "127.0.0.1:0"\nallow_anonymous = true\n'
PASSING = '''
from fumehood_sdk import Plugin

plugin = Plugin("passing", version="1.0.0")


@plugin.tool(side_effects="none", isolation="process")
def passing() -> str:
    """Comes and goes."""
    return "here"
'''

DEEP = '''
from fumehood_sdk import Context, Plugin

plugin = Plugin("deep", version="1.0.0")


@plugin.tool(side_effects="none", isolation="process")
async def tell(levels: int, ctx: Context) -> str:
    """Tells of lists in lists."""
    said = []
    for _ in range(levels - 1):
        said = [said]
    ctx.update("deep", data=said)
    return "told"
'''


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("plugins")
    plugins = [write_plugin(folder / "speech", "speech", CODE), write_plugin(folder / "passing", "passing", PASSING)]
    plugins.append(write_plugin(folder / "deep", "deep", DEEP))
    with running_sidecar(plugins, more=TABLE) as running:
        yield running


@contextlib.asynccontextmanager
async def connected(sidecar: Sidecar, transport: str, mode: str, **options: Any) -> AsyncIterator[Client]:
    """A client by either transport."""
    made = http_client(url_of(sidecar), mode, **options) if transport == "http" else stdio_client(
        sidecar.target, mode, **options
    )  # fmt: skip
    async with made as client:
        yield client


WAYS = [("http", mode) for mode in MODES] + [("stdio", mode) for mode in MODES]


@pytest.mark.parametrize(("transport", "mode"), WAYS)
async def test_progress_logging_and_cancellation_arrive(sidecar: Sidecar, transport: str, mode: str) -> None:
    logged: list[LoggingMessageNotificationParams] = []
    begun = asyncio.Event()

    async def log(message: LoggingMessageNotificationParams) -> None:
        logged.append(message)
        if message.data == {"message": "begun"}:
            begun.set()

    async with connected(sidecar, transport, mode, logging_callback=log, log_level="info") as client:
        if mode != MODERN:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MCPDeprecationWarning)
                await client.set_logging_level("info")
        steps: list[tuple[float, float | None, str | None]] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            steps.append((done, total, message))

        assert text_of(await client.call_tool("count", {"to": 3}, progress_callback=progress)) == "counted to 3"
        assert steps[:3] == [(1, 3, "at 1"), (2, 3, "at 2"), (3, 3, "at 3")]
        assert steps[3][0] > 3  # it must rise, and the tool has named no number
        assert steps[3][1:] == (None, "no number")
        assert [each.data["message"] for each in logged] == ["at 1", "at 2", "at 3", "no number"]
        assert {(each.level, each.logger) for each in logged} == {("info", "count")}

        calls = asyncio.create_task(client.call_tool("wait", {}, meta={"fumehood/callId": f"{transport}-{mode}-wait"}))
        await begun.wait()
        calls.cancel()
        await asyncio.gather(calls, return_exceptions=True)
        assert await outcome(sidecar, f"{transport}-{mode}-wait") == "CANCELLED_SIGNAL"
        assert text_of(await client.call_tool("say", {"text": "on"})) == "on"


async def outcome(sidecar: Sidecar, call_id: str) -> str:
    """The code with which a call ends."""
    async with sidecar.channel() as channel:
        tools = tool_service_pb2_grpc.ToolServiceStub(channel)
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                answer = await tools.GetCall(tool_service_pb2.GetCallRequest(call_id=call_id))
                if answer.HasField("result"):
                    return str(answer.result.error.code)
            await asyncio.sleep(0.01)


async def test_without_a_word_of_the_client_nothing_is_sent_beside_the_result(sidecar: Sidecar) -> None:
    logged: list[object] = []

    async def log(message: LoggingMessageNotificationParams) -> None:
        logged.append(message)

    for mode in MODES:
        async with http_client(url_of(sidecar), mode, logging_callback=log) as client:
            assert text_of(await client.call_tool("count", {"to": 3})) == "counted to 3"
    assert logged == []


async def test_a_call_id_makes_a_repeat_the_same_call(sidecar: Sidecar) -> None:
    async with http_client(url_of(sidecar), MODERN) as client:
        meta: Any = {"fumehood/callId": "same-1"}
        first = await client.call_tool("say", {"text": "x"}, meta=meta)
        again = await client.call_tool("say", {"text": "x"}, meta=meta)
        assert first.meta is not None
        assert again.meta is not None
        assert first.meta["fumehood/callId"] == again.meta["fumehood/callId"] == "same-1"
        assert first.content == again.content
        with pytest.raises(MCPError):  # other arguments under the same id
            await client.call_tool("say", {"text": "y"}, meta=meta)
        with pytest.raises(MCPError, match="is to be a text"):
            await client.call_tool("say", {"text": "y"}, meta={"fumehood/callId": 5})  # type: ignore[typeddict-unknown-key]
        traced = {
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "fumehood/callId": "traced-1",
        }
        assert not (await client.call_tool("say", {"text": "x"}, meta=traced)).is_error  # type: ignore[arg-type]


async def set_passing(sidecar: Sidecar, *, enabled: bool) -> None:
    async with sidecar.channel() as channel:
        plugins = plugin_service_pb2_grpc.PluginServiceStub(channel)
        if enabled:
            await plugins.EnablePlugin(plugin_service_pb2.EnablePluginRequest(name="passing"))
        else:
            await plugins.DisablePlugin(plugin_service_pb2.DisablePluginRequest(name="passing"))


async def test_clients_of_both_eras_are_told_when_the_tools_change(sidecar: Sidecar) -> None:
    told = asyncio.Event()

    async def heard(message: object) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            told.set()

    async def each_change(changed: Callable[[], Any], client: Client) -> None:
        for enabled in (False, True):
            await set_passing(sidecar, enabled=enabled)
            await asyncio.wait_for(changed(), 60)
            assert ("passing" in await names(client)) is enabled

    async def legacy_told() -> None:
        await told.wait()
        told.clear()

    try:
        async with http_client(url_of(sidecar), "legacy", message_handler=heard) as client:
            assert client.server_capabilities.tools is not None
            assert client.server_capabilities.tools.list_changed
            assert "passing" in await names(client)
            await each_change(legacy_told, client)
        async with (
            http_client(url_of(sidecar), MODERN) as client,
            client.listen(tools_list_changed=True) as events,
        ):
            assert "passing" in await names(client)
            await each_change(lambda: anext(aiter(events)), client)
    finally:
        await set_passing(sidecar, enabled=True)


def test_listening_acknowledges_what_is_told_of_alone(sidecar: Sidecar) -> None:
    everything = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": ["x://a"],
    }
    nothing = {kind: asked for kind, asked in everything.items() if kind != "toolsListChanged"}
    with stdio_process("--address", sidecar.target) as process:
        for asked, told in ((everything, {"toolsListChanged": True}), (nothing, {})):
            send(process, modern("subscriptions/listen", notifications=asked)[0])
            acknowledged = receive(process)
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            assert acknowledged["params"]["notifications"] == told


@pytest.mark.parametrize(("transport", "mode"), WAYS)
async def test_call_goes_on_whatever_its_tool_says_beside_an_update(
    sidecar: Sidecar, transport: str, mode: str
) -> None:
    told: list[Any] = []

    async def log(message: LoggingMessageNotificationParams) -> None:
        told.append(message.data["data"])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        async with connected(sidecar, transport, mode, logging_callback=log, log_level="info") as client:
            if mode != MODERN:
                await client.set_logging_level("info")
            for levels in (3, 300, 900):
                assert text_of(await client.call_tool("tell", {"levels": levels})) == "told"
    assert told == [[[[]]], "[" * 300 + "]" * 300, "[" * 900 + "]" * 900]


class SlowTools(ToolList):
    """A list that is not there until it is released, as another one each time."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.pages = 0

    async def page(self, _cursor: str | None, _caller: McpCaller) -> tuple[list[dict[str, Any]], str]:
        self.pages += 1
        await self.released.wait()
        return [{"name": str(self.pages)}], ""


async def test_who_begins_to_listen_while_another_one_leaves_is_told_of_changes() -> None:
    tools, told, both = SlowTools(), asyncio.Event(), asyncio.Event()
    changes = ToolChanges(tools)
    caller = McpCaller("token")

    async def passing() -> None:
        async with changes.listening(caller, lambda: None):
            raise AssertionError("it left before the first list was there")

    async def staying() -> None:
        async with changes.listening(caller, told.set):
            both.set()
            await told.wait()

    leaving, remaining = asyncio.create_task(passing()), asyncio.create_task(staying())
    while tools.pages < 2:  # noqa: ASYNC110 - both wait for their first list then
        await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    tools.released.set()
    await both.wait()
    polling = asyncio.create_task(changes.run())
    await asyncio.wait_for(remaining, 60)
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)


async def test_errors_of_the_sidecar_are_typed_in_both_eras(sidecar: Sidecar) -> None:
    for mode in MODES:
        async with http_client(url_of(sidecar), mode) as client:
            failed = await client.call_tool("fail", {})
            assert error_of(failed)["code"] == "TOOL_EXECUTION_FAILED"
            assert "it broke" in text_of(failed)
            with pytest.raises(MCPError) as wrong:
                await client.list_tools(cursor="nonsense")
            assert (wrong.value.code, wrong.value.data["code"]) == (-32602, "PAGE_TOKEN_INVALID")
