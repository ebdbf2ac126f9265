"""Who may serve a hook: whom the operator names, and for as long as that holds."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
import pytest_asyncio
from fumehood.v1 import plugin_service_pb2 as ppb
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub

from tests.callers.support import bearer, revoke, token_of
from tests.hooks.support import CODE, Client, allow, client_of, output
from tests.rpc.support import reason_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin

RULES = """
[[caller]]
name = "agent"
tools = ["say"]
[[caller]]
name = "risk"
[[caller]]
name = "boss"
tools = ["say"]
operator = true
[[hook]]
name = "risks"
served_by = ["risk"]
callers = ["agent"]
[[hook]]
name = "own"
when_gone = "allow"
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    plugin = write_plugin(tmp_path_factory.mktemp("plugins") / "house", "house", CODE)
    with running_sidecar([plugin], server='listen = ["unix:s", "127.0.0.1:0"]', more=RULES) as running:
        yield running


@pytest_asyncio.fixture
async def boss(guarded: Sidecar) -> AsyncIterator[Client]:
    async with client_of(guarded, guarded.targets[1], bearer(token_of(guarded.folder, "boss"))) as client:
        yield client


@pytest.mark.parametrize(
    ("caller", "hook", "reason"),
    [
        ("risk", "risks", ""),
        ("agent", "risks", "CALLER_DENIED"),
        ("boss", "risks", "CALLER_DENIED"),
        ("boss", "own", ""),
        ("risk", "own", "CALLER_DENIED"),
        ("agent", "none", "CALLER_DENIED"),
        ("boss", "none", "HOOK_NOT_FOUND"),
    ],
)
async def test_a_hook_is_served_by_whom_the_operator_names(
    guarded: Sidecar, caller: str, hook: str, reason: str
) -> None:
    async with client_of(guarded, guarded.targets[1], bearer(token_of(guarded.folder, caller))) as client:
        if not reason:
            assert (await client.connect(hook)).asked == []
            return
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.connect(hook)
        assert reason_of(refused.value) == reason


async def test_a_stream_whose_token_is_revoked_decides_no_more(guarded: Sidecar, boss: Client) -> None:
    await boss.until_gone("risks")
    token, asker = token_of(guarded.folder, "risk"), bearer(token_of(guarded.folder, "agent"))
    async with (
        client_of(guarded, guarded.targets[1], bearer(token)) as client,
        client_of(guarded, guarded.targets[1], asker) as agent,
    ):
        async with client_of(guarded, guarded.targets[1], bearer(token)) as other:
            hook = await other.connect("risks")
            call = asyncio.create_task(agent.call("say", text="a"))
            question = await hook.question()
            assert (question.call.caller, question.call.authenticated_by) == ("agent", "token")
            await hook.answer(question, allow(question))
            assert output(await call) == {"said": "a"}
        await boss.until_gone("risks")
        hook = await client.connect("risks")
        call = asyncio.create_task(agent.call("say", text="a"))
        question = await hook.question()
        revoke(guarded.folder, token)
        await hook.answer(question, allow(question))
        assert await hook.ended() is grpc.StatusCode.UNAUTHENTICATED
        assert (await call).error.code == "TOOL_UNAVAILABLE"


async def test_a_reload_ends_streams_of_hooks_that_are_gone_and_leaves_others(guarded: Sidecar, boss: Client) -> None:
    path = guarded.folder / "fumehood.toml"
    before = path.read_text()
    token = bearer(token_of(guarded.folder, "risk"))
    async with client_of(guarded, guarded.targets[1], token) as client:
        risks, own = await client.connect("risks"), await boss.connect("own")
        path.write_text(before.replace('name = "risks"', 'name = "others"'))
        try:
            async with grpc.aio.insecure_channel(guarded.targets[1]) as channel:
                await PluginServiceStub(channel).ReloadConfig(ppb.ReloadConfigRequest(), metadata=boss.metadata)
                assert await risks.ended() is grpc.StatusCode.NOT_FOUND
                call = asyncio.create_task(boss.call("say", text="a"))
                question = await own.question()
                await own.answer(question, allow(question))
                assert output(await call) == {"said": "a"}
        finally:
            path.write_text(before)
            async with grpc.aio.insecure_channel(guarded.targets[1]) as channel:
                await PluginServiceStub(channel).ReloadConfig(ppb.ReloadConfigRequest(), metadata=boss.metadata)
        own.stream.cancel()


def test_the_command_lists_who_serves_each(guarded: Sidecar) -> None:
    command = [sys.executable, "-m", "fumehood_server", "hooks", "list", "--json"]
    token = token_of(guarded.folder, "boss")
    done = subprocess.run(
        [*command, "--address", guarded.targets[1], "--token", token], capture_output=True, check=True, text=True
    )
    listed = {each["name"]: each for each in json.loads(done.stdout)["hooks"]}
    assert [*listed] == ["risks", "own"]
    assert (listed["risks"]["callers"], listed["own"]["when_gone"]) == (["agent"], "allow")
