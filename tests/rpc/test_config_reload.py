"""Taking up fumehood.toml while calls are made: all of it or nothing, and no call is lost."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from fumehood.v1 import plugin_service_pb2 as pb
from fumehood.v1 import tool_service_pb2
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

from tests.cli.command import fumehood
from tests.sidecar import Sidecar, running_sidecar, write_plugin

from .support import BOUND_S, ToolClient, call, text_of

RELOADS = 5

CODE = '''
import asyncio
from fumehood_sdk import Context, Plugin

plugin = Plugin("{name}", version="1.0.0")


@plugin.tool(side_effects="none", idempotent=True, isolation="process")
def {name}_warm(text: str) -> str:
    """Says it again, in a process that serves many."""
    return text


@plugin.tool(side_effects="none", idempotent=True, isolation="call")
def {name}_fresh(text: str) -> str:
    """Says it again, in a process of its own."""
    return text


@plugin.tool(side_effects="none", isolation="process", sequential=True)
async def {name}_wait(seconds: float, ctx: Context) -> str:
    """Says that it has begun, and waits."""
    ctx.update("begun")
    await asyncio.sleep(seconds)
    return "waited"


@plugin.tool(side_effects="none", requires=["secret:KEY"], isolation="process")
def {name}_key(ctx: Context) -> int:
    """Reads its secret."""
    return len(ctx.secret("KEY"))
'''


@dataclass
class House:
    """A sidecar whose file is rewritten. It serves one plugin at first, and another one lies beside it."""

    sidecar: Sidecar
    first: str
    """The file as it was at the start."""
    other: str
    """The entry of the other plugin."""

    def write(self, *more: str, first: str = "") -> None:
        path = self.sidecar.folder / "fumehood.toml"
        path.with_suffix(".new").write_text("\n".join((first or self.first, *more)))
        path.with_suffix(".new").replace(path)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    steady, other = (
        write_plugin(tmp_path / name, name, CODE.replace("{name}", name)) for name in ("steady", "passing")
    )
    with running_sidecar([steady]) as sidecar:
        entry = f"[[plugin]]\npath = {json.dumps(str(other))}\n"
        yield House(sidecar, (sidecar.folder / "fumehood.toml").read_text(), entry)


async def reload(client: ToolClient) -> tuple[list[str], list[str], list[str]]:
    done = await client.plugins.ReloadConfig(pb.ReloadConfigRequest(), timeout=BOUND_S)
    return list(done.added_plugins), list(done.removed_plugins), list(done.changed_plugins)


async def refusal(client: ToolClient) -> tuple[str, dict[str, str]]:
    """The message and the metadata that a reload is refused with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await reload(client)
    status, info = rpc_status.from_call(caught.value), ErrorInfo()
    assert status is not None
    assert status.details[0].Unpack(info)
    assert (caught.value.code(), info.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "RELOAD_REFUSED")
    return caught.value.details() or "", dict(info.metadata)


async def served(client: ToolClient) -> list[str]:
    return [each.name for each in (await client.plugins.ListPlugins(pb.ListPluginsRequest())).plugins]


@pytest.mark.slow("many rounds under load")
async def test_no_call_is_lost_while_the_file_is_taken_up_again_and_again(house: House) -> None:
    async with house.sidecar.channel() as channel:
        client = ToolClient(house.sidecar, channel)
        done = asyncio.Event()
        counts = [0] * 4

        async def calls(number: int, tool: str) -> None:
            while not done.is_set():
                assert text_of(await client.call(tool, text="hello")) == "hello"
                counts[number] += 1

        async def everybody_calls() -> None:
            before = counts.copy()
            while any(now == then for now, then in zip(counts, before, strict=True)):  # noqa: ASYNC110 - of other tasks
                await asyncio.sleep(0.01)

        async def reloads() -> None:
            tables = ("", "[limits.default]\nopen_files = 128\n", "[limits.cap]\nprocesses = 400\n")
            for index, table in zip(range(RELOADS), itertools.cycle(tables), strict=False):
                house.write(table, *([house.other] if index % 2 == 0 else []))
                added, removed, _ = await reload(client)
                assert (added, removed) == ((["passing"], []) if index % 2 == 0 else ([], ["passing"]))
                if added:
                    assert text_of(await client.call("passing_warm", text="hello")) == "hello"
                await everybody_calls()
            done.set()

        async with asyncio.timeout(4 * BOUND_S), asyncio.TaskGroup() as tasks:
            for number, kind in enumerate(("warm", "warm", "fresh", "fresh")):
                tasks.create_task(calls(number, f"steady_{kind}"))
            tasks.create_task(reloads())
    # A thread of its own writes the log, so that all is there once the sidecar has ended.
    house.sidecar.signal()
    await asyncio.to_thread(house.sidecar.wait)
    assert [line["event"] for line in house.sidecar.log()].count("config_reloaded") == RELOADS


async def test_a_file_that_is_wrong_changes_nothing_and_one_that_is_right_does(house: House) -> None:
    async with house.sidecar.channel() as channel:
        client = ToolClient(house.sidecar, channel)
        house.write("[egress]\ntimeout_s = 0\n", house.other)
        message, metadata = await refusal(client)
        path = house.sidecar.folder / "fumehood.toml"
        line = path.read_text().splitlines().index("timeout_s = 0") + 1
        assert message.startswith(f"{path}:{line}: `timeout_s` in [egress] must be more than 0")
        assert metadata == {"file": str(path), "line": str(line), "key": "egress.timeout_s"}
        house.write(house.other, '[[plugin]]\npath = "/nowhere"\n')
        message, _ = await refusal(client)
        assert "the plugin nowhere can't be taken: " in message
        house.write(house.other, first=house.first.replace("[server]", '[server]\nlisten = ["unix:b"]\ndrain_s = 1'))
        message, metadata = await refusal(client)
        assert metadata["restart"] == "server.drain_s, server.listen"
        house.write(house.other, '[journal]\nstore = "off"\n')
        _, metadata = await refusal(client)
        assert metadata["restart"] == "journal.store"
        assert await served(client) == ["steady"]
        assert (await client.call("steady_key")).error.code == "TOOL_UNAVAILABLE"
        key = house.sidecar.folder / "key"
        key.write_text("a-secret-value")
        key.chmod(0o600)
        house.write('[plugin.tools.steady_key]\nsecrets = ["KEY"]', house.other, '[secrets.KEY]\nfile = "key"\n')
        assert await reload(client) == (["passing"], [], ["steady"])
        assert await served(client) == ["steady", "passing"]
        assert await client.details("steady_key") == len("a-secret-value")
        assert await reload(client) == ([], [], [])


async def test_a_plugin_that_is_removed_finishes_its_calls_also_those_that_wait_for_a_process(house: House) -> None:
    house.write(house.other)
    async with house.sidecar.channel() as channel:
        client = ToolClient(house.sidecar, channel)
        await reload(client)
        session = client.tools.Session()
        for _ in range(2):  # the second one waits for its turn, and finds a pool that is retired
            one = call("passing_wait", {"seconds": 1})
            await session.write(tool_service_pb2.SessionRequest(call=one, updates=True))
        assert (await session.read()).HasField("update")
        house.write()
        assert await reload(client) == ([], ["passing"], [])
        assert (await client.call("passing_warm", text="new")).error.code == "TOOL_NOT_FOUND"
        answers = [await session.read() for _ in range(3)]
        finished = [answer.finished for answer in answers if answer.HasField("finished")]
        assert [text_of(result) for result in finished] == ["waited", "waited"], finished


async def test_reloads_at_one_time_run_one_after_the_other(house: House) -> None:
    house.write(house.other)
    async with house.sidecar.channel() as channel:
        client = ToolClient(house.sidecar, channel)
        done = await asyncio.gather(*(reload(client) for _ in range(8)))
    assert sorted(added for added, _, _ in done) == [[]] * 7 + [["passing"]]


async def test_a_hangup_takes_up_the_file_and_a_wrong_one_is_told_in_the_log(house: House) -> None:
    async with house.sidecar.channel() as channel:
        client = ToolClient(house.sidecar, channel)

        async def logged(event: str) -> dict[str, object]:
            async with asyncio.timeout(BOUND_S):
                while not (found := [line for line in house.sidecar.log() if line["event"] == event]):  # noqa: ASYNC110 - the log tells nobody
                    await asyncio.sleep(0.02)
            return found[0]

        house.write('[[plugin]]\npaht = 1\npath = "x"\n')
        house.sidecar.signal(signal.SIGHUP)
        assert "unknown key `paht`" in str((await logged("config_reload_refused"))["problem"])
        assert await served(client) == ["steady"]
        house.write(house.other)
        house.sidecar.signal(signal.SIGHUP)
        assert (await logged("config_reloaded"))["added"] == ["passing"]
        assert await served(client) == ["steady", "passing"]


def test_the_command_tells_what_has_changed_or_what_is_wrong(house: House) -> None:
    house.write(house.other)
    done = fumehood("reload", "--json", address=house.sidecar.target)
    taken = {"added": ["passing"], "removed": [], "changed": [], "keys": [], "notes": []}
    assert (done.status, json.loads(done.stdout)) == (0, taken)
    house.write(house.other, "[secrets.KEY]\n")
    done = fumehood("reload", "--json", address=house.sidecar.target)
    error = json.loads(done.stderr)["error"]
    assert (done.status, done.stdout) == (2, "")
    assert (error["code"], error["details"]["key"]) == ("RELOAD_REFUSED", "secrets.KEY")
    house.write()
    assert fumehood("reload", address=house.sidecar.target).stdout == "removed passing\n"
