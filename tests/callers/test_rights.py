"""What each caller sees and may do: tools, its own calls and nobody else's, an operator's methods."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc
from fumehood.v1 import approval_service_pb2 as approval_pb
from fumehood.v1 import hook_service_pb2 as hook_pb
from fumehood.v1 import journal_service_pb2 as journal_pb
from fumehood.v1 import mcp_service_pb2 as mcp_pb
from fumehood.v1 import orchestration_service_pb2 as orchestration_pb
from fumehood.v1 import plugin_service_pb2 as plugin_pb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_server.callers import CallerRules
from fumehood_server.config.callers import CallerConfig
from fumehood_server.model.caller import ANONYMOUS, Authentication, Caller
from fumehood_server.rpc.authentication import FOR_EVERY_CALLER

from tests.rpc.support import BOUND_S, call, refused, text_of

from .support import House

ALL = ["say", "secret_report", "wait"]


async def listed(house: House, caller: str) -> list[str]:
    shown = house.token(caller)
    tools = (await house.tcp.tools.ListTools(pb.ListToolsRequest(), metadata=shown, timeout=BOUND_S)).tools
    formatted = await house.tcp.tools.ListTools(
        pb.ListToolsRequest(format=pb.TOOL_FORMAT_OPENAI_RESPONSES), metadata=shown, timeout=BOUND_S
    )
    available = await house.tcp.tools.CheckAvailability(pb.CheckAvailabilityRequest(), metadata=shown)
    names = [each.definition.name for each in tools]
    assert [each["name"] for each in json.loads(formatted.tools_json)] == names
    assert [each.name for each in available.tools] == names
    return names


async def outcome(house: House, caller: str, tool: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    answer = await house.tcp.tools.CallTool(
        call(tool, {"text": "x"} if tool == "say" else {}, **fields), metadata=house.token(caller), timeout=BOUND_S
    )
    error = answer.result.error
    return error.code, json.loads(error.details_json or "{}")


async def test_a_caller_is_listed_what_it_may_list_and_nothing_else(house: House) -> None:
    assert await listed(house, "reader") == ["say", "wait"]
    assert await listed(house, "writer") == ALL


async def test_a_caller_can_have_only_what_it_may_call_listed(house: House) -> None:
    async def callable_by(caller: str) -> list[str]:
        request = pb.ListToolsRequest(callable_only=True)
        answer = await house.tcp.tools.ListTools(request, metadata=house.token(caller), timeout=BOUND_S)
        return [each.definition.name for each in answer.tools]

    assert await callable_by("reader") == ["say"]
    assert await callable_by("writer") == ALL


async def test_a_tool_that_a_caller_may_not_list_is_as_if_it_were_not_there(house: House) -> None:
    async def both(name: str, caller: str) -> tuple[Any, Any]:
        shown = house.token(caller)
        try:
            got: Any = (await house.tcp.tools.GetTool(pb.GetToolRequest(name=name), metadata=shown)).tool.plugin
        except grpc.aio.AioRpcError as error:
            got = (error.code(), (error.details() or "").replace(name, "NAME"))
        request = pb.CheckAvailabilityRequest(names=[name])
        (answer,) = (await house.tcp.tools.CheckAvailability(request, metadata=shown)).tools
        return got, [(each.code, each.message.replace(name, "NAME")) for each in answer.availability.reasons]

    assert await both("secret_report", "reader") == await both("not_there", "reader")
    assert await both("secret_report", "writer") == ("speech", [])


async def test_what_a_caller_may_not_call_is_denied_whether_it_is_there_or_not(house: House) -> None:
    denied = ("TOOL_DENIED", {"reason": "caller_denied", "caller": "reader"})
    assert await outcome(house, "reader", "say") == ("", {})
    assert await outcome(house, "reader", "secret_report") == denied
    assert await outcome(house, "reader", "not_there") == denied
    assert await outcome(house, "reader", "wait") == denied  # it may list it
    assert await outcome(house, "writer", "secret_report") == ("", {})
    assert (await outcome(house, "writer", "secret_reports"))[0] == "TOOL_NOT_FOUND"


async def test_no_other_tool_is_named_to_a_caller_that_has_mistaken_a_name(house: House) -> None:
    shown = house.token("reader")
    answer = await house.tcp.tools.CallTool(call("secret_repory"), metadata=shown, timeout=BOUND_S)
    assert answer.result.error.code == "TOOL_NOT_FOUND"
    assert "secret_report" not in answer.result.error.message
    answer = await house.unix.tools.CallTool(call("secret_repory"), timeout=BOUND_S)
    assert "secret_report" in answer.result.error.message


async def test_a_session_a_batch_and_a_stream_hold_callers_to_the_same_rules(house: House) -> None:
    shown = house.token("reader")
    stream = house.tcp.tools.StreamTool(pb.StreamToolRequest(call=call("secret_report")), metadata=shown)
    answers = [each async for each in stream]
    assert answers[-1].finished.error.code == "TOOL_DENIED"
    batch = pb.CallToolsRequest(calls=[call("secret_report"), call("say", {"text": "yes"})])
    told = [answer async for each in house.tcp.tools.CallTools(batch, metadata=shown) for answer in each.answers]
    assert [each.result.error.code for each in told] == ["TOOL_DENIED", ""]
    session = house.tcp.tools.Session(metadata=shown)
    await session.write(pb.SessionRequest(call=call("secret_report")))
    assert (await session.read()).finished.error.code == "TOOL_DENIED"
    await session.write(pb.SessionRequest(call=call("say", {"text": "yes"})))
    assert text_of((await session.read()).finished) == "yes"
    await session.done_writing()


async def test_a_caller_asks_for_its_own_calls_and_an_operator_for_all(house: House) -> None:
    assert await outcome(house, "writer", "say", call_id="of-writer") == ("", {})

    async def found(caller: str) -> Any:
        request = pb.GetCallRequest(call_id="of-writer")
        return (await house.tcp.tools.GetCall(request, metadata=house.token(caller), timeout=BOUND_S)).state

    assert await found("writer") == await found("boss") == pb.CALL_STATE_ENDED
    assert await refused(found("reader")) == (grpc.StatusCode.NOT_FOUND, "CALL_NOT_FOUND")


async def test_a_caller_cancels_its_own_calls_and_an_operator_all(house: House) -> None:
    async def cancel(caller: str, call_id: str) -> None:
        request = pb.CancelCallRequest(call_id=call_id)
        await house.tcp.tools.CancelCall(request, metadata=house.token(caller), timeout=BOUND_S)

    for caller in ("writer", "boss"):
        call_id = f"cancelled-by-{caller}"
        request = pb.StreamToolRequest(call=call("wait", {"seconds": 600}, call_id=call_id))
        stream = house.tcp.tools.StreamTool(request, metadata=house.token("writer"))
        while (await stream.read()).WhichOneof("event") != "update":
            pass
        assert await refused(cancel("reader", call_id)) == (grpc.StatusCode.NOT_FOUND, "CALL_NOT_FOUND")
        running = pb.GetCallRequest(call_id=call_id)
        assert await refused(house.tcp.tools.GetCall(running, metadata=house.token("reader"))) == (
            grpc.StatusCode.NOT_FOUND,
            "CALL_NOT_FOUND",
        )
        await cancel(caller, call_id)
        assert (await stream.read()).finished.error.code == "CANCELLED_SIGNAL"


async def test_the_outcome_of_another_callers_call_is_not_had_by_its_id(house: House) -> None:
    assert await outcome(house, "writer", "say", call_id="taken") == ("", {})
    assert await outcome(house, "writer", "say", call_id="taken") == ("", {})
    in_use = (grpc.StatusCode.ALREADY_EXISTS, "CALL_ID_IN_USE")
    assert await refused(outcome(house, "reader", "say", call_id="taken")) == in_use
    assert await refused(house.unix.tools.CallTool(call("say", {"text": "x"}, call_id="taken"))) == in_use


async def test_a_call_under_way_is_joined_by_its_own_caller_alone(house: House) -> None:
    request = call("wait", {"seconds": 600}, call_id="joined")
    stream = house.tcp.tools.StreamTool(pb.StreamToolRequest(call=request), metadata=house.token("writer"))
    while (await stream.read()).WhichOneof("event") != "update":
        pass
    shown = house.token("boss")
    in_use = (grpc.StatusCode.ALREADY_EXISTS, "CALL_ID_IN_USE")
    assert await refused(house.tcp.tools.CallTool(request, metadata=shown, timeout=BOUND_S)) == in_use
    joined = asyncio.create_task(_result(house, request))
    await house.tcp.tools.CancelCall(pb.CancelCallRequest(call_id="joined"), metadata=shown)
    assert (await stream.read()).finished.error.code == "CANCELLED_SIGNAL"
    assert (await joined).error.code == "CANCELLED_SIGNAL"


async def _result(house: House, request: pb.CallToolRequest) -> Any:
    return (await house.tcp.tools.CallTool(request, metadata=house.token("writer"), timeout=BOUND_S)).result


async def test_what_speaks_of_all_callers_or_changes_the_sidecar_is_for_operators(house: House) -> None:
    tcp, failed = house.tcp, list[Any]()
    requests: dict[str, Any] = {
        "ListPlugins": lambda shown: tcp.plugins.ListPlugins(plugin_pb.ListPluginsRequest(), metadata=shown),
        "GetPlugin": lambda shown: tcp.plugins.GetPlugin(plugin_pb.GetPluginRequest(name="speech"), metadata=shown),
        "ReloadConfig": lambda shown: tcp.plugins.ReloadConfig(plugin_pb.ReloadConfigRequest(), metadata=shown),
        "ListEvents": lambda shown: tcp.journal.ListEvents(journal_pb.ListEventsRequest(), metadata=shown),
    }
    for name, request in requests.items():
        await request(house.token("boss"))
        denied = await refused(request(house.token("writer")))
        if denied != (grpc.StatusCode.PERMISSION_DENIED, "CALLER_DENIED"):
            failed.append((name, denied))
    assert failed == []


def test_every_method_that_is_not_for_every_caller_is_an_operators() -> None:
    """A method that is new is an operator's until somebody has thought of what each caller may do with it."""
    services = {
        service.full_name: {method.name for method in service.methods}
        for file in (
            pb.DESCRIPTOR,
            plugin_pb.DESCRIPTOR,
            journal_pb.DESCRIPTOR,
            approval_pb.DESCRIPTOR,
            hook_pb.DESCRIPTOR,
            orchestration_pb.DESCRIPTOR,
            mcp_pb.DESCRIPTOR,
        )
        for service in file.services_by_name.values()
    }
    methods = {f"/{service}/{method}" for service, names in services.items() for method in names}
    assert {each for each in FOR_EVERY_CALLER if each.startswith("/fumehood.")} <= methods
    assert {each.rpartition("/")[2] for each in methods - FOR_EVERY_CALLER} == {
        *(
            "ResolveCall",
            "ListPlugins",
            "GetPlugin",
            "ReloadPlugin",
            "ReloadConfig",
            "CompareConfig",
            "TailPluginLogs",
            "DisablePlugin",
            "EnablePlugin",
            "ListHooks",
        ),
        *("ListEvents", "WatchEvents", "VerifyJournal", "ReplayRun", "ForkRun"),
    }


def test_rules_deny_what_they_do_not_name() -> None:
    rules = CallerRules(
        [CallerConfig(name="a", tools=("files_*", "x*y*z"), approve=("files_write",)), CallerConfig(name="none")]
    )
    one, other, gone = (Caller(name=name, connection="ipv4:1.2.3.4:5") for name in ("a", "none", "gone"))
    assert [name for name in ("files_read", "files_", "file", "afiles_x", "xyz", "x1y2z", "xzy", "x" * 300) if
            rules.may_call(one, name)] == ["files_read", "files_", "xyz", "x1y2z"]  # fmt: skip
    assert (rules.may_approve(one, "files_write"), rules.may_approve(one, "files_read")) == (True, False)
    for nobody in (other, gone):
        assert not any(ask(nobody, "files_read") for ask in (rules.may_list, rules.may_call, rules.may_approve))
        assert not rules.is_operator(nobody)


def test_a_caller_that_came_by_no_address_may_do_nothing() -> None:
    rules = CallerRules()
    whoever = Caller(connection="unix:", authenticated_by=Authentication.PEER)
    asks = (rules.may_list, rules.may_call, rules.may_approve)
    assert all(ask(whoever, "say") for ask in asks)
    assert not any(ask(ANONYMOUS, "say") for ask in asks)
