"""Sampling: what a server asks of a model goes to the engine that its plugin is granted, counted and on record."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_sdk.adapters.mcp.client_requests import RefusedInput
from fumehood_sdk.adapters.mcp.inputs import Inputs
from fumehood_server.config.load import load_config
from fumehood_server.errors import ConfigError

from tests.cli.command import fumehood
from tests.journal.reading import Recorded, data
from tests.mcp.support import Caller, mcp_plugin, reason
from tests.orchestration.scripted import ScriptedModel, model_server, scripted_model
from tests.sidecar import Sidecar, running_sidecar

__all__ = ["model_server", "scripted_model"]

REVISIONS = pytest.mark.parametrize("stateless", ["", "1"], ids=["2025-11-25", "2026-07-28"])
SAMPLING = "sampling/createMessage"


@contextmanager
def sampling(folder: Path, model: ScriptedModel, stateless: str = "", *, more: str = "") -> Iterator[Sidecar]:
    plugin = mcp_plugin(folder / "small", environment={"STATELESS": f'"{stateless}"'})
    with running_sidecar(
        [(plugin, 'engine = "scripted"')], more=model.engine_table(more="max_tokens = 12") + more
    ) as found:
        yield found


def told(text: str) -> Any:
    """What the server was told, in either revision."""
    found = json.loads(text)
    return found.get("it") or found["result"]


@REVISIONS
async def test_engine_answers_and_its_limits_stand(
    tmp_path: Path, scripted_model: ScriptedModel, stateless: str
) -> None:
    scripted_model.says("blue")
    with sampling(tmp_path, scripted_model, stateless) as sidecar:
        async with sidecar.channel() as channel:
            result = await Caller(channel).call("ask_client", method=SAMPLING)
        assert told(result.content[0].text) == {
            "role": "assistant",
            "content": {"type": "text", "text": "blue"},
            "model": "gpt-4o",
            "stopReason": "endTurn",
        }
        (asked,) = scripted_model.requests()
        assert [(each["role"], each["content"]) for each in asked["messages"]] == [
            ("system", "You name colours."),
            ("user", "Which colour?"),
        ]
        assert (asked.get("max_tokens") or asked["max_completion_tokens"]) == 12  # it asked for 16
        events = await Recorded(sidecar.folder).call_until(result.call_id, "execute_end")
        (start,), (end,) = data(events, "call_inference_start"), data(events, "call_inference_end")
        assert (start["engine"], start["name"], start["request"]["kept"]) == ("scripted", "inference-1", True)
        assert (end["finish_reason"], end["tokens_in"], end["tokens_out"]) == ("stop", 10, 5)


@pytest.mark.parametrize(
    ("of", "more"), [("shaped", {"temperature": 0.5, "stop_sequences": ["END", "STOP"]}), (SAMPLING, {})]
)
async def test_record_has_all_that_was_asked(
    tmp_path: Path, scripted_model: ScriptedModel, of: str, more: dict[str, Any]
) -> None:
    scripted_model.says("blue END")
    with sampling(tmp_path, scripted_model) as sidecar:
        async with sidecar.channel() as channel:
            result = await Caller(channel).call("ask_client", method=SAMPLING, of=of, or_fail=True)
        assert not result.is_error, result.error
        events = await Recorded(sidecar.folder).call_until(result.call_id, "execute_end")
    (start,) = data(events, "call_inference_start")
    asked = {
        "max_tokens": 16,
        "messages": [{"role": "user", "text": "Which colour?"}],
        "stop_sequences": [],
        "system_prompt": "" if more else "You name colours.",
        "temperature": None,
    }
    text = json.dumps(asked | more, separators=(",", ":"), sort_keys=True)
    assert start["request"]["sha256"] == hashlib.sha256(text.encode()).hexdigest()


@REVISIONS
async def test_plugin_without_an_engine_is_refused_by_name(
    tmp_path: Path, scripted_model: ScriptedModel, stateless: str
) -> None:
    plugin = mcp_plugin(tmp_path / "small", environment={"STATELESS": f'"{stateless}"'})
    with running_sidecar([plugin], more=scripted_model.engine_table()) as sidecar:
        async with sidecar.channel() as channel:
            result = await Caller(channel).call("ask_client", method=SAMPLING, or_fail=True)
    assert reason(result) == "sampling_refused"
    (asked,) = json.loads(result.error.details_json)["requests"]
    assert asked["refused"] == "engine_not_granted"
    assert "`engine` of its [[plugin]]" in asked["problem"]
    assert scripted_model.requests() == []


@pytest.mark.parametrize(("of", "why"), [("image", "other than text"), ("nothing", "no messages")])
async def test_what_is_no_text_is_refused_by_name(
    tmp_path: Path, scripted_model: ScriptedModel, of: str, why: str
) -> None:
    with sampling(tmp_path, scripted_model) as sidecar:
        async with sidecar.channel() as channel:
            result = await Caller(channel).call("ask_client", method=SAMPLING, of=of, or_fail=True)
    assert reason(result) == "sampling_refused"
    assert why in result.error.message
    assert scripted_model.requests() == []


async def test_quotas_count_what_plugins_ask(tmp_path: Path, scripted_model: ScriptedModel) -> None:
    scripted_model.says("blue", times=None)
    quota = '[[policy.quota]]\nname = "asks"\ninferences = 2\nwindow = "1d"\nengines = ["scripted"]\n'
    with sampling(tmp_path, scripted_model, more=quota) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            for _ in range(2):
                assert not (await caller.call("ask_client", method=SAMPLING, or_fail=True)).is_error
            result = await caller.call("ask_client", method=SAMPLING, or_fail=True)
    (asked,) = json.loads(result.error.details_json)["requests"]
    assert asked["refused"] == "quota_exceeded"
    assert len(scripted_model.requests()) == 2


async def test_inferences_take_nothing_more_of_what_their_call_takes(
    tmp_path: Path, scripted_model: ScriptedModel
) -> None:
    scripted_model.says("blue", times=None)
    quotas = (
        '[[policy.quota]]\nname = "calls"\ncalls = 2\nwindow = "1d"\n'
        '[[policy.quota]]\nname = "tokens"\ntokens = 1000\nwindow = "1d"\n'
    )
    with sampling(tmp_path, scripted_model, more=quotas) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            for _ in range(2):
                result = await caller.call("ask_client", method=SAMPLING, or_fail=True)
                assert not result.is_error, result.error
            assert (await caller.call("ask_client", method=SAMPLING)).error.code == "TOOL_QUOTA_EXCEEDED"
        events = await Recorded(sidecar.folder).call_until(result.call_id, "execute_end")
    assert len(data(events, "call_inference_end")) == 1
    counted = [each["number"] for each in events if each["number"]]
    assert counted == [*range(1, len(counted) + 1)]


async def test_inference_that_is_cut_off_has_an_end_and_counts_as_the_longest(
    tmp_path: Path, scripted_model: ScriptedModel
) -> None:
    scripted_model.says("blue", latency=30_000)
    scripted_model.says("blue", times=None)
    quota = '[[policy.quota]]\nname = "tokens"\ntokens = 15\nwindow = "1d"\n'
    with sampling(tmp_path, scripted_model, more=quota) as sidecar:
        async with sidecar.channel() as channel:
            caller = Caller(channel)
            request = pb.CallToolRequest(
                tool="ask_client", call_id="cut-off", arguments_json=json.dumps({"method": SAMPLING})
            )
            asking = asyncio.ensure_future(caller.stub.CallTool(request))
            await Recorded(sidecar.folder).call_until("cut-off", "call_inference_start")
            async with asyncio.timeout(30):
                while not scripted_model.requests():  # noqa: ASYNC110 - nothing tells what another process has done
                    await asyncio.sleep(0.01)
            await caller.stub.CancelCall(pb.CancelCallRequest(call_id="cut-off"))
            assert (await asking).result.error.code == "CANCELLED_SIGNAL"
            events = await Recorded(sidecar.folder).call_until("cut-off", "call_inference_end")
            (end,) = data(events, "call_inference_end")
            assert (end["error_code"], end["is_last"], end["tokens_out"]) == ("CANCELLED_SIGNAL", True, 0)
            # 12 tokens may have been answered, and 32 characters were sent.
            result = await caller.call("ask_client", method=SAMPLING, or_fail=True)
    (asked,) = json.loads(result.error.details_json)["requests"]
    assert asked["refused"] == "quota_exceeded"
    assert len(scripted_model.requests()) == 1


async def test_engine_that_fails_is_told_to_the_server(tmp_path: Path, scripted_model: ScriptedModel) -> None:
    more = "attempts = 1"
    plugin = mcp_plugin(tmp_path / "small")
    engine = scripted_model.engine_table(more=more)
    with running_sidecar([(plugin, 'engine = "scripted"')], more=engine) as sidecar:
        async with sidecar.channel() as channel:
            result = await Caller(channel).call("ask_client", method=SAMPLING, or_fail=True)
        events = await Recorded(sidecar.folder).call_until(result.call_id, "execute_end")
    (asked,) = json.loads(result.error.details_json)["requests"]
    assert asked["refused"] == "inference_failed"
    assert [each["error_code"] for each in data(events, "call_inference_end")] == ["INFERENCE_MODEL_UNAVAILABLE"]


def test_engine_that_there_is_none_of_is_refused(tmp_path: Path) -> None:
    mcp_plugin(tmp_path / "small")
    (tmp_path / "fumehood.toml").write_text('[[plugin]]\npath = "small"\nengine = "scripted"\n')
    with pytest.raises(ConfigError, match=r'there is no \[\[engine\]\] "scripted" for `engine` in \[\[plugin\]\]'):
        load_config(tmp_path / "fumehood.toml")


def test_granted_engine_is_shown(tmp_path: Path, scripted_model: ScriptedModel) -> None:
    with sampling(tmp_path, scripted_model) as sidecar:
        shown = json.loads(fumehood("plugin", "show", "small", "--json", address=sidecar.target).stdout)
    shown = shown.get("plugin", shown)
    assert shown["grants"]["engines"] == ["scripted"], shown
    assert {tuple(each["engines"]) for each in shown["sandboxes"]} == {("scripted",)}


@pytest.mark.parametrize(
    "more",
    [
        {"messages": [{"role": [], "content": {"type": "text", "text": "x"}}]},
        {"messages": [{"role": {}, "content": {"type": "text", "text": "x"}}]},
        {"temperature": 10**400},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"maxTokens": 10**400},
        {"stopSequences": [{}]},
    ],
)
def test_whatever_a_server_asks_for_ends_in_a_refusal_of_that_alone(more: dict[str, Any]) -> None:
    asked = {"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}], "maxTokens": 1}
    sent: list[bytes] = []
    answers: list[bytes | RefusedInput] = []
    inputs = Inputs(sent.append)
    inputs.ask(1, "sampling/createMessage", asked | more, answers.append)
    (answer,) = answers
    assert isinstance(answer, RefusedInput)
    assert sent == []
    inputs.ask(1, "sampling/createMessage", asked, answers.append)
    assert (len(sent), len(answers)) == (1, 1)
