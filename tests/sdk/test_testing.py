"""Tools called in the test's own process."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fumehood_sdk import (
    Annotations,
    Blob,
    Content,
    Context,
    HttpFailed,
    HttpRequest,
    HttpResponse,
    Plugin,
    PluginError,
    Text,
    ToolError,
)
from fumehood_sdk.testing import CallLog, CallUpdate, ToolTester, replay

from .plugins import kitchen

plugin = Plugin("trial", version="1")


@plugin.tool(side_effects="none")
def lie() -> int:
    """Return another type."""
    return "five"  # type: ignore[return-value]


@plugin.tool(side_effects="none", limits={"output_bytes": 10})
def exceed() -> str:
    """Return more than was declared."""
    return "x" * 20


@plugin.tool(side_effects="none")
async def gather(ctx: Context) -> list[int]:
    """Do two things at once."""

    async def one(number: int) -> int:
        ctx.update(f"at {number}", progress=number, total=2, data={"n": number})
        await asyncio.sleep(0)
        return number

    ctx.log.debug("both", of=2)
    return list(await asyncio.gather(one(1), one(2)))


def test_a_result_holds_details_content_updates_and_logs() -> None:
    result = ToolTester(plugin).call("gather")
    assert result.details == [1, 2]
    assert result.content == (Text("[1,2]"),)
    assert result.updates == tuple(
        CallUpdate(message=f"at {number}", progress=number, total=2, data={"n": number}) for number in (1, 2)
    )
    assert result.logs == (CallLog(level="debug", message="both", fields={"of": 2}),)
    assert result.error is None


def test_blocks_come_back_as_they_were() -> None:
    result = ToolTester(kitchen.plugin).call("blocks")
    assert result.content == (Text("a"), Text("b"), Blob(b"\x00\xff", "image/png"))
    assert (result.details, result.terminate) == ([1, 2], True)


def test_a_call_sees_what_the_tester_was_given(tmp_path: Path) -> None:
    tester = ToolTester(
        kitchen.plugin,
        attempt=2,
        call_id="c",
        timeout_s=5,
        readable_paths=[str(tmp_path)],
        correlation={"request_id": "r", "caused_by": "x" * 200},
    )
    assert tester.call("seen").details == {
        "attempt": 2,
        "call_id": "c",
        "has_time": True,
        "readable_paths": [str(tmp_path)],
        "writable_paths": [],
        "request_id": "r",
        "caused_by": "x" * 200,
    }


@pytest.mark.parametrize(("how", "retryable"), [("transient", True), ("meant", False), ("exit", False)])
def test_a_failure_reads_as_the_caller_would_read_it(how: str, retryable: bool) -> None:
    error = ToolTester(kitchen.plugin).call("fail", how=how).error
    assert error is not None
    assert error.retryable == retryable
    assert error.reason == {"transient": "transient", "meant": "dish_unknown", "exit": "exception"}[how]


@pytest.mark.parametrize("tool", ["wait_politely", "sleep", "spin", "wait_async"])
def test_a_call_can_be_cancelled(tool: str) -> None:
    running = ToolTester(kitchen.plugin).start(tool)
    assert running.wait_for_update().message
    running.cancel()
    result = running.result()
    assert tool == "wait_politely" or (result.error is not None and result.error.reason == "cancelled")


def test_an_asynchronous_tool_can_be_called_from_an_asynchronous_test() -> None:
    async def test() -> Any:
        return ToolTester(plugin).call("gather").details

    assert asyncio.run(test()) == [1, 2]


def test_a_result_that_does_not_fit_its_type_fails_as_in_the_sidecar() -> None:
    error = ToolTester(plugin).call("lie").error
    assert error is not None
    assert error.reason == "invalid_output"


def test_a_result_over_the_tools_limit_fails() -> None:
    error = ToolTester(plugin).call("exceed").error
    assert error is not None
    assert error.reason == "output_too_large"


def test_an_unknown_tool_is_the_tests_own_mistake() -> None:
    with pytest.raises(LookupError, match="gather"):
        ToolTester(plugin).call("nosuch")


def test_what_is_said_of_blocks_is_shown_with_them() -> None:
    book = Plugin("pages", version="1.0.0")
    said = Annotations(audience=("user",), priority=1.0)
    shown = (
        Text("# one", media_type="text/markdown", resource_uri="page:1", annotations=said),
        Blob(b"2", "image/png", resource_uri="page:2"),
        Text("three"),
    )

    @book.tool(side_effects="none")
    def pages() -> Content:
        """Shows pages."""
        return Content(*shown)

    assert ToolTester(book).call("pages").content == shown
    assert shown[0] != Text("# one")


def test_the_package_exports_what_is_documented() -> None:
    import fumehood_sdk  # noqa: PLC0415
    from fumehood_sdk import testing  # noqa: PLC0415

    assert fumehood_sdk.__all__ == [
        "Annotations",
        "Blob",
        "Cancelled",
        "Content",
        "Context",
        "Field",
        "HttpFailed",
        "HttpRefused",
        "HttpRequest",
        "HttpResponse",
        "Plugin",
        "PluginError",
        "SecretRefused",
        "Text",
        "ToolError",
        "Transient",
        "Wrapper",
        "wrap",
    ]
    names = ["CallError", "CallLog", "CallResult", "CallUpdate", "ReplayFailed", "RunningCall", "ToolTester", "replay"]
    assert testing.__all__ == names
    for name in fumehood_sdk.__all__:
        assert getattr(fumehood_sdk, name).__module__.startswith("fumehood_sdk.")
    assert set(fumehood_sdk.__all__) <= set(dir(fumehood_sdk))
    with pytest.raises(AttributeError, match="nosuch"):
        fumehood_sdk.nosuch  # noqa: B018
    assert sys.modules["fumehood_sdk"] is fumehood_sdk


async def _fetch(ctx: Context) -> str:
    """Fetches, with a key."""
    key = await ctx.asecret("KEY")
    response = await ctx.http.aget("https://a.example/x", headers={"authorization": key}, max_bytes=20)
    return f"{response.status} {response.json()}"


def _plugin_that_asks() -> Plugin:
    plugin = Plugin("asker", version="1")
    plugin.tool(side_effects="read", requires=["secret:KEY"], name="fetch")(_fetch)

    @plugin.tool(side_effects="read")
    def post(ctx: Context) -> str:
        """Posts, which its level does not allow."""
        return ctx.http.request("POST", "https://a.example/x", json={"a": 1}).text

    @plugin.tool(side_effects="external")
    def send(ctx: Context) -> str:
        """Posts."""
        return ctx.http.request("POST", "https://a.example/x", json={"a": 1}).text

    @plugin.tool(side_effects="none")
    def peek(ctx: Context) -> str:
        """Asks for a secret that it doesn't require."""
        return ctx.secret("KEY")

    return plugin


def test_secrets_and_http_are_what_the_test_gives() -> None:
    seen: list[HttpRequest] = []

    def answer(request: HttpRequest) -> HttpResponse:
        seen.append(request)
        return HttpResponse(200, content=b'{"b": 2}', headers={"Content-Type": "application/json"})

    tester = ToolTester(_plugin_that_asks(), secrets={"KEY": "sesame"}, http=answer)
    assert tester.call("fetch").details == "200 {'b': 2}"
    assert tester.call("send").details == '{"b": 2}'
    assert [(each.method, each.url) for each in seen] == [
        ("GET", "https://a.example/x"),
        ("POST", "https://a.example/x"),
    ]
    assert (seen[0].headers, seen[0].max_bytes) == ((("authorization", "sesame"),), 20)
    assert (seen[1].headers, seen[1].body) == ((("content-type", "application/json"),), b'{"a":1}')


def test_what_the_sidecar_would_refuse_is_refused() -> None:
    def long(_: HttpRequest) -> HttpResponse:
        return HttpResponse(200, content=b"x" * 21)

    def failing(_: HttpRequest) -> HttpResponse:
        raise HttpFailed("nobody is there", reason="connect_failed")

    def error_of(tool: str, **fields: Any) -> tuple[str, bool]:
        error = ToolTester(_plugin_that_asks(), **fields).call(tool).error
        assert error
        return error.reason, error.retryable

    keys = {"KEY": "sesame"}
    assert error_of("peek", secrets=keys) == ("secret_refused", False)
    assert error_of("fetch") == ("secret_refused", False)
    assert error_of("fetch", secrets=keys) == ("host_not_granted", False)
    assert error_of("post", http=long) == ("method_not_allowed", False)
    assert error_of("fetch", secrets=keys, http=long) == ("response_too_large", False)
    assert error_of("fetch", secrets=keys, http=failing) == ("connect_failed", True)


def test_a_recorded_name_with_a_prefix_is_the_tool_whose_whole_name_it_ends_with(tmp_path: Path) -> None:
    plugin = Plugin("words", version="1.0.0")

    @plugin.tool(side_effects="none")
    def say() -> str:
        """Say one thing."""
        return "short"

    @plugin.tool(side_effects="none")
    def essay() -> str:
        """Say another."""
        return "long"

    result = {"content": [{"text": "long"}], "details_json": '"long"', "terminate": False, "error": None}
    call = {"call_id": "a", "tool": "team_essay", "arguments_json": "{}", "context": {}, "values": []}
    file = tmp_path / "calls"
    file.write_text(f'{{"fumehood_replay": 1}}\n{json.dumps(call | {"result": result})}\n')
    assert replay(file, plugin) == ("a",)


def test_what_a_tool_is_called_with_is_prepared_as_by_the_sidecar() -> None:
    plugin = Plugin("units", version="1")

    def prepare(sent: dict[str, object]) -> dict[str, object]:
        if "miles" in sent:
            return {"km": round(float(str(sent["miles"])) * 1.609)}
        if "leagues" in sent:
            raise ToolError("no leagues", reason="unit")
        return sent

    @plugin.tool(side_effects="none", prepare_arguments=prepare)
    def go(km: int) -> int:
        """Goes."""
        return km

    tester = ToolTester(plugin)
    assert tester.call("go", miles=10).details == 16
    assert tester.call("go", km=3).details == 3
    failed = tester.call("go", leagues=1).error
    assert failed is not None
    assert failed.reason == "unit"
    wrong = tester.call_json("go", "{").error
    assert wrong is not None
    assert wrong.reason == "invalid_arguments"


def test_prepare_arguments_is_a_function_without_an_event_loop() -> None:
    async def prepare(sent: object) -> object:
        return sent

    with pytest.raises(PluginError, match="prepare_arguments= takes a function"):

        @Plugin("units", version="1").tool(side_effects="none", prepare_arguments=prepare)
        def go(km: int) -> int:
            """Goes."""
            return km
