"""Python middleware in the sidecar: around calls, and the sidecar doesn't start without it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_server.errors import ConfigError
from fumehood_server.hooks import load_middleware
from fumehood_server.model.hooks import MiddlewareConfig

from tests.hooks.support import BOUND_S, CODE, Client, arguments, client_of, details, output, text
from tests.journal.reading import Recorded, data
from tests.sidecar import Sidecar, running_sidecar, write_plugin

MODULE = """
import asyncio
import time
from fumehood_server.middleware import Annotations, Call, Content, Denied, Next, Result

seen = []


async def outer(call: Call, next: Next) -> Result:
    arguments = call.arguments()
    match arguments["text"]:
        case "denied":
            raise Denied("not this one")
        case "raise":
            raise RuntimeError("a fault of its own")
        case "hang":
            await asyncio.sleep(3600)
        case "never":
            return Result()
        case "twice":
            await next()
            return await next()
        case "invalid":
            return await next({"text": []})
        case "block":
            time.sleep(0.3)
    result = await next({**arguments, "text": arguments["text"] + "1"})
    match arguments["text"]:
        case "withheld":
            raise Denied("private")
        case "late":
            raise RuntimeError("a fault after the call")
        case "wrong":
            return result.changed(details={"said": 1})
        case "none":
            return None
    said = result.details()["said"] + ")"
    shown = Content("shown", resource_uri="note:a", annotations=Annotations(("user",)))
    return result.changed(details={"said": said}, content=(shown,), terminate=True)


class Inner:
    async def __call__(self, call: Call, next: Next) -> Result:
        result = await next({**call.arguments(), "text": call.arguments()["text"] + "2"})
        return result.changed(details={"said": "(" + result.details()["said"]})


class Cleaning:
    ended = []

    async def __call__(self, call: Call, next: Next) -> Result:
        if call.arguments()["text"] == "ended?":
            return (await next()).changed(content=(Content(",".join(self.ended)),))
        try:
            return await next()
        finally:
            self.ended.append(call.call_id)


def broken(call, next):
    return next()


import_me = 1
"""
POINTS = """[fumehood.middleware]
outer = house_middleware:outer
inner = house_middleware:Inner
cleaning = house_middleware:Cleaning
broken = house_middleware:broken
missing = house_middleware:missing
absent = no_such_module:x
"""
CONFIG = """
[[hook]]
name = "last"
tools = ["say"]
when_gone = "allow"

[[middleware]]
name = "outer"
tools = ["say"]
timeout_s = 3

[[middleware]]
name = "inner"
tools = ["sa*"]

[[middleware]]
name = "cleaning"
tools = ["show"]
"""


def install(folder: Path) -> Path:
    """What pip would leave of a package."""
    (folder / "house_middleware.py").write_text(MODULE)
    about = folder / "house_middleware-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: house-middleware\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    return folder


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def stacked(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    plugin = write_plugin(tmp_path_factory.mktemp("plugins") / "house", "house", CODE)
    environment = {**os.environ, "PYTHONPATH": str(package)}
    with running_sidecar([plugin], more=CONFIG, interpreter=[sys.executable], environment=environment) as running:
        yield running


@pytest_asyncio.fixture
async def around(stacked: Sidecar) -> AsyncIterator[Client]:
    async with client_of(stacked) as client:
        yield client


async def test_middleware_runs_around_the_call_and_hooks_within_it(around: Client, stacked: Sidecar) -> None:
    async with around.serving("last", arguments(times=2)) as hook:
        found = await around.call("say", "around", text="a")
    assert hook.asked[0].call.arguments_json == '{"text":"a12","times":1}'
    assert (output(found), text(found), found.terminate) == ({"said": "(a12a12)"}, "shown", True)
    (shown,) = found.content
    assert (shown.resource_uri, [*shown.annotations.audience]) == ("note:a", ["user"])
    said = data(await Recorded(stacked.folder).call_until("around", "execute_end"), "hook_decided")
    assert [(each["hook"], each["kind"], each["stage"], each["choice"]) for each in said] == [
        ("outer", "middleware", "before", "change"),
        ("inner", "middleware", "before", "change"),
        ("last", "hook", "before", "change"),
        ("inner", "middleware", "after", "change"),
        ("outer", "middleware", "after", "change"),
    ]
    listed = await around.listed()
    assert [*listed] == ["outer", "inner", "cleaning", "last"]
    assert [each.connections for each in listed.values()] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("what", "code", "reason", "stage"),
    [
        ("denied", "TOOL_DENIED", "hook_denied", "before"),
        ("withheld", "TOOL_DENIED", "hook_denied", "after"),
        ("raise", "TOOL_UNAVAILABLE", "hook_gone", "before"),
        ("hang", "TOOL_UNAVAILABLE", "hook_gone", "before"),
        ("never", "TOOL_UNAVAILABLE", "hook_gone", "before"),
        ("twice", "TOOL_UNAVAILABLE", "hook_gone", "after"),
        ("late", "TOOL_UNAVAILABLE", "hook_gone", "after"),
        ("none", "TOOL_UNAVAILABLE", "hook_gone", "after"),
        ("invalid", "TOOL_UNAVAILABLE", "hook_failed", "before"),
        ("wrong", "TOOL_UNAVAILABLE", "hook_failed", "after"),
    ],
)
async def test_what_middleware_does_wrong_ends_the_call_in_its_name(
    around: Client, what: str, code: str, reason: str, stage: str
) -> None:
    found = await around.call("say", text=what)
    told = details(found)
    assert (found.error.code, told["reason"], told["stage"]) == (code, reason, stage)
    assert (told["hook"], told["kind"]) == ("outer", "middleware")
    assert found.attempts == (stage == "after")
    assert "fault" not in found.error.message, "that is for the log"


async def test_the_log_names_what_middleware_raised_and_what_blocked_the_loop(around: Client, stacked: Sidecar) -> None:
    await around.call("say", "raised", text="raise")
    line = stacked.logged(event="middleware_failed", call_id="raised")
    assert (line["middleware"], "a fault of its own" in str(line)) == ("outer", True)
    async with asyncio.timeout(BOUND_S):  # one line in ten seconds is logged, and others may hold the loop up
        while not any("outer (" in str(line) for line in stacked.log() if line.get("event") == "loop_held_up"):
            assert output(await around.call("say", text="block"))["said"] == "(block12)"


async def test_where_a_call_has_no_result_its_middleware_is_cancelled_and_cleans_up(around: Client) -> None:
    failed = await around.call("show", "failed", text="fail")
    assert failed.error.code == "TOOL_EXECUTION_FAILED", "a failure of the tool is a result"
    request = pb.CallToolRequest(tool="show", arguments_json='{"text":"a"}', call_id="late")
    request.timeout.nanos = 1
    late = (await around.tools.CallTool(request)).result
    assert late.is_error
    assert (await around.call("show", text="b")).is_error is False
    ended = text(await around.call("show", text="ended?")).split(",")
    assert ended[0] == "failed"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("uninstalled", "no package that is installed has"),
        ("absent", "can't be imported: ModuleNotFoundError"),
        ("missing", "can't be imported: AttributeError"),
        ("broken", "is no async callable"),
    ],
)
def test_middleware_that_can_not_be_loaded_is_named(
    package: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.syspath_prepend(str(package))
    with pytest.raises(ConfigError, match=f'"{name}".*{said}|{said}.*"{name}"'):
        load_middleware([MiddlewareConfig(name=name)], package / "fumehood.toml")
    (loaded,) = load_middleware([MiddlewareConfig(name="inner")], package / "fumehood.toml")
    assert loaded.config.name == "inner"


def test_the_sidecar_does_not_start_without_its_middleware(tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text('[[middleware]]\nname = "absent"\n')
    done = subprocess.run(
        [sys.executable, "-m", "fumehood_server", "serve", "--config", str(tmp_path / "fumehood.toml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert 'no package that is installed has the middleware "absent"' in done.stderr
