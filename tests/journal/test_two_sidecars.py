"""Two sidecars on one PostgreSQL: one outcome for each id, whoever is asked, killed or cut off from the database."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
from fumehood.v1 import journal_service_pb2 as jpb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub
from fumehood_server.config.database import Database
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.place import DatabasePlace
from fumehood_server.journal.postgres.ownership import lock_key
from fumehood_server.journal.store import EventFilter
from fumehood_server.journal.verify import verify
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests import preloaded
from tests.cli.command import environment, fumehood
from tests.postgresql import PostgresServer, kept_files, running_server
from tests.rpc.support import ToolClient, call, reason_of, text_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = """
import time
from pathlib import Path
from fumehood_sdk import Context, Plugin

plugin = Plugin("ledger", version="1.0.0")


def _run(folder: str, line: str, until: str) -> str:
    while until and not Path(until).exists():
        time.sleep(0.005)
    return line


@plugin.tool(side_effects="write", isolation="process")
def enter(folder: str, line: str, until: str = "") -> str:
    \"\"\"Adds a line, once a file is there.\"\"\"
    with (Path(folder) / "entries").open("a") as file:
        file.write(line + "\\n")
    return _run(folder, line, until)


@plugin.tool(side_effects="write", idempotent=True, isolation="process")
def put(folder: str, line: str, ctx: Context, until: str = "") -> int:
    \"\"\"The same, and may be done twice.\"\"\"
    with (Path(folder) / "entries").open("a") as file:
        file.write(f"{line}:{ctx.attempt}\\n")
    _run(folder, line, until)
    return ctx.attempt


@plugin.tool(side_effects="read", isolation="process")
def look(folder: str, line: str, until: str = "") -> str:
    \"\"\"Waits until a file is there.\"\"\"
    return _run(folder, line, until)
"""
KEEP = """
from fumehood_sdk import Context, Plugin

plugin = Plugin("alone", version="1.0.0")


@plugin.tool(side_effects="write", idempotent=True, isolation="process", timeout_s=3600)
def keep(ctx: Context) -> None:
    \"\"\"Does nothing for long.\"\"\"
    ctx.update("here")
    while True:
        pass
"""
BOUND_S = 30.0


@dataclass(frozen=True)
class Pair:
    sidecars: tuple[Sidecar, Sidecar]
    clients: tuple[ToolClient, ToolClient]
    folder: Path
    """That the tools may write in."""
    url: str

    def arguments(self, line: str, *, waits: bool = False) -> dict[str, str]:
        until = {"until": str(self.folder.parent / "r" / f"go-{line}")} if waits else {}
        return {"folder": str(self.folder), "line": line, **until}

    def let_go(self, line: str) -> None:
        (self.folder.parent / "r" / f"go-{line}").touch()

    def entries(self) -> list[str]:
        path = self.folder / "entries"
        return path.read_text().split() if path.exists() else []


def start(
    stack: contextlib.ExitStack, at: Path, entries: Path, url: str, more: str = "", *, alone: bool = False
) -> Sidecar:
    """`alone`: with a tool that the others don't have."""
    at.mkdir(exist_ok=True)
    plugin = write_plugin(at / "plugin", "ledger", CODE)
    grants = f'max_side_effects = "write"\nwrite = ["{entries}"]\nread = ["{entries.parent / "r"}"]\n'
    grants += "".join(f'[plugin.tools.{each}]\npermission = "allow"\n' for each in ("enter", "put"))
    plugins = [(plugin, grants)]
    if alone:
        allowed = 'max_side_effects = "write"\n[plugin.tools.keep]\npermission = "allow"\n'
        plugins.append((write_plugin(at / "alone", "alone", KEEP), allowed))
    return stack.enter_context(running_sidecar(plugins, more=f'[journal]\nstore = "{url}"\n{more}', at=at))


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """For sockets, whose paths are short, with a folder that tools may write in and one that they may read."""
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for each, mode in (("e", 0o777), ("r", 0o755)):
            (folder / each).mkdir()
            (folder / each).chmod(mode)
        yield folder


@pytest.fixture(scope="module")
def places(postgres_server: PostgresServer) -> Iterator[tuple[Path, str]]:
    with short_folder() as folder:
        yield folder, postgres_server.new_database()


@pytest.fixture(scope="module")
def two(places: tuple[Path, str]) -> Iterator[tuple[Sidecar, Sidecar]]:
    folder, url = places
    with contextlib.ExitStack() as stack:
        yield start(stack, folder / "a", folder / "e", url), start(stack, folder / "b", folder / "e", url)


@pytest.fixture
async def pair(places: tuple[Path, str], two: tuple[Sidecar, Sidecar]) -> AsyncIterator[Pair]:
    async with two[0].channel() as one, two[1].channel() as other:
        yield Pair(two, (ToolClient(two[0], one), ToolClient(two[1], other)), places[0] / "e", places[1])


async def found(client: ToolClient, call_id: str, *, wait: bool = False) -> pb.GetCallResponse:
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                return await client.tools.GetCall(pb.GetCallRequest(call_id=call_id, wait=wait))
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("tool", ["enter", "look"])
async def test_an_id_sent_to_both_at_once_runs_on_one_and_both_are_told(pair: Pair, tool: str) -> None:
    ids = [f"{tool}-{number}" for number in range(10)]
    answers = await asyncio.gather(
        *(
            client.tools.CallTool(call(tool, pair.arguments(each), call_id=each), timeout=BOUND_S)
            for each in ids
            for client in pair.clients
        )
    )
    assert [text_of(each.result) for each in answers] == [each for each in ids for _ in pair.clients]
    if tool == "enter":
        assert sorted(each for each in pair.entries() if each in ids) == sorted(ids)
    with contextlib.closing(DatabasePlace(Database(pair.url)).open_reader()) as reader:
        for kind in ("execute_start", "execute_end"):
            wanted = EventFilter(types=frozenset({kind}), subjects=tuple(ids))
            assert sorted(each.subject for each in reader.events(wanted, limit=100)) == sorted(ids)


async def test_a_call_that_runs_on_the_other_is_followed_and_another_under_its_id_is_refused(pair: Pair) -> None:
    one, other = pair.clients
    arguments = pair.arguments("slow", waits=True)
    running = asyncio.ensure_future(one.tools.CallTool(call("enter", arguments, call_id="slow"), timeout=BOUND_S))
    assert (await found(other, "slow")).state == pb.CALL_STATE_RUNNING
    followed = asyncio.ensure_future(other.tools.CallTool(call("enter", arguments, call_id="slow"), timeout=BOUND_S))
    waited = asyncio.ensure_future(found(other, "slow", wait=True))
    for tool, given in (("enter", pair.arguments("else")), ("look", arguments)):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await other.tools.CallTool(call(tool, given, call_id="slow"), timeout=BOUND_S)
        assert raised.value.code() is grpc.StatusCode.ALREADY_EXISTS
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await other.tools.CallTool(call("enter", arguments, call_id="slow"), timeout=0.3)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert not followed.done()
    pair.let_go("slow")
    assert [text_of((await each).result) for each in (running, followed)] == ["slow", "slow"]
    assert text_of((await waited).result) == "slow"
    assert pair.entries().count("slow") == 1


async def test_a_sidecar_that_forgets_calls_earlier_does_not_start_beside_the_others(pair: Pair) -> None:
    folder = pair.folder.parent / "g"
    folder.mkdir()
    config = folder / "fumehood.toml"
    config.write_text(f'[journal]\nstore = "{pair.url}"\ncall_id_window_s = 60\n')
    done = await asyncio.to_thread(fumehood, "serve", "--config", str(config))
    assert done.status == 2
    assert "`call_id_window_s` of [journal] is 60 here and 86400 at another sidecar" in done.stderr
    assert "stop them all first" in done.stderr


async def test_a_watcher_sees_what_the_other_sidecar_records(pair: Pair) -> None:
    async with pair.sidecars[1].channel() as channel, asyncio.timeout(BOUND_S):
        watching = JournalServiceStub(channel).WatchEvents(jpb.WatchEventsRequest())
        await watching.read()
        await pair.clients[0].tools.CallTool(call("look", pair.arguments("seen"), call_id="seen"), timeout=BOUND_S)
        seen: set[str] = set()
        while "execute_end" not in seen:
            message = await watching.read()
            seen |= {each.type for each in message.events if each.call_id == "seen"}
        watching.cancel()


async def test_every_command_reads_it_and_verifying_over_grpc_does(pair: Pair) -> None:
    for number in range(3):
        request = call("look", pair.arguments(f"cli-{number}"), call_id=f"cli-{number}")
        request.context.request_id = "cli-run"
        await pair.clients[number % 2].tools.CallTool(request, timeout=BOUND_S)
    config = ["--config", str(pair.sidecars[0].folder / "fumehood.toml")]
    async with asyncio.timeout(BOUND_S):  # a checkpoint over them
        while True:
            bundle = pair.folder.parent / "bundle.html"
            done = await asyncio.to_thread(
                fumehood, "journal", "evidence", "--run", "cli-run", "-o", str(bundle), *config
            )
            if done.status == 0:
                break
            await asyncio.sleep(0.2)
    commands = (
        ["verify", "--json"],
        ["list", "--run", "cli-run", "--json"],
        ["show", "cli-run", "--json"],
        ["tail", "-n", "5", "--json"],
        ["export", "--run", "cli-run"],
        ["replay", "cli-run", "--json"],
        ["prune", "--before", "30d", "--events", "--json"],
    )
    said = {each[0]: await asyncio.to_thread(fumehood, "journal", *each, *config) for each in commands}
    assert {name: each.status for name, each in said.items()} == dict.fromkeys(said, 0)
    assert json.loads(said["verify"].stdout)["verified"]
    assert len(json.loads(said["list"].stdout)["calls"]) == 3
    assert len(said["replay"].stdout.splitlines()) == 3
    async with pair.sidecars[1].channel() as channel:
        stream = JournalServiceStub(channel).VerifyJournal(jpb.VerifyJournalRequest(), timeout=BOUND_S)
        verdict = [each async for each in stream][-1].verdict
    assert verdict.verified
    assert verdict.signed_events > 0


async def test_calls_of_a_killed_sidecar_are_settled_by_the_other(pair: Pair) -> None:
    other = pair.clients[1]
    arguments = pair.arguments("doomed", waits=True)
    with contextlib.ExitStack() as stack:
        third = await asyncio.to_thread(start, stack, pair.folder.parent / "c", pair.folder, pair.url)
        async with third.channel() as channel:
            client = ToolClient(third, channel)
            running = [
                asyncio.ensure_future(client.tools.CallTool(call(tool, arguments, call_id=f"doomed-{tool}")))
                for tool in ("enter", "look")
            ]
            async with asyncio.timeout(BOUND_S):
                while "doomed" not in pair.entries():  # noqa: ASYNC110 - nothing tells what a tool has done
                    await asyncio.sleep(0.01)
            await found(other, "doomed-look")
            followed = asyncio.ensure_future(
                other.tools.CallTool(call("enter", arguments, call_id="doomed-enter"), timeout=BOUND_S)
            )
            third.signal(signal.SIGKILL)
            third.wait()
            await asyncio.gather(*running, return_exceptions=True)
            assert (await followed).result.error.code == "TOOL_OUTCOME_UNKNOWN"
            looked = await found(other, "doomed-look", wait=True)
            assert looked.result.error.code == "TOOL_UNAVAILABLE"
            assert pair.entries().count("doomed") == 1
    settle = pb.ResolveCallRequest(
        call_id="doomed-enter", resolution=pb.RESOLUTION_EXECUTED, resolved_by="me", reason="seen"
    )
    both = await asyncio.gather(*(each.tools.ResolveCall(settle) for each in pair.clients), return_exceptions=True)
    codes = [each.code() for each in both if isinstance(each, grpc.aio.AioRpcError)]
    assert codes == [grpc.StatusCode.FAILED_PRECONDITION]


async def test_calls_of_a_killed_sidecar_run_on_the_others_where_their_callers_asked_for_that(pair: Pair) -> None:
    def asked(line: str, tool: str = "put") -> pb.CallToolRequest:
        request = call(tool, pair.arguments(line, waits=True), call_id=line)
        request.retry.after_crash = True
        return request

    one, other = pair.clients
    names = ("again", "followed", "raced", "read")
    requests = [asked("again"), asked("followed"), asked("raced"), asked("read", "look")]
    with contextlib.ExitStack() as stack:
        third = await asyncio.to_thread(start, stack, pair.folder.parent / "d", pair.folder, pair.url)
        async with third.channel() as channel:
            client = ToolClient(third, channel)
            control = call("put", pair.arguments("control", waits=True), call_id="control")
            running = [asyncio.ensure_future(client.tools.CallTool(each)) for each in (*requests, control)]
            async with asyncio.timeout(BOUND_S):
                began = {f"{each}:1" for each in (*names[:3], "control")}
                while not began <= set(pair.entries()):  # noqa: ASYNC110 - nothing tells what a tool has done
                    await asyncio.sleep(0.01)
            await found(other, "read")
            followed = asyncio.ensure_future(one.tools.CallTool(requests[1], timeout=BOUND_S))
            assert (await found(one, "again")).state == pb.CALL_STATE_RUNNING
            for each in (*names, "control"):
                pair.let_go(each)
            third.signal(signal.SIGKILL)
            third.wait()
            await asyncio.gather(*running, return_exceptions=True)
    assert (await found(other, "again", wait=True)).state == pb.CALL_STATE_INTERRUPTED
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await other.tools.CallTool(call("put", pair.arguments("again"), call_id="again"), timeout=BOUND_S)
    assert reason_of(raised.value) == "CALL_ID_IN_USE"
    again, read, *raced = await asyncio.gather(
        other.tools.CallTool(requests[0], timeout=BOUND_S),
        one.tools.CallTool(requests[3], timeout=BOUND_S),
        *(each.tools.CallTool(requests[2], timeout=BOUND_S) for each in pair.clients),
    )
    results = [each.result for each in (again, await followed, *raced)]
    assert [(each.details_json, each.attempts) for each in results] == [("2", 2)] * 4
    assert text_of(read.result) == "read"
    unknown = (await other.tools.CallTool(control, timeout=BOUND_S)).result
    assert (unknown.error.code, unknown.attempts) == ("TOOL_OUTCOME_UNKNOWN", 1)
    ran = [each for each in pair.entries() if each.partition(":")[0] in {*names, "control"}]
    assert sorted(ran) == sorted([*(f"{each}:{attempt}" for each in names[:3] for attempt in (1, 2)), "control:1"])
    with contextlib.closing(DatabasePlace(Database(pair.url)).open_reader()) as reader:
        for name in names[:3]:
            events = [decode(each.body) for each in reader.events_of_call(name)]
            kinds = ["execute_start", "execute_attempt", "execute_taken_over", "execute_attempt", "execute_end"]
            assert [(each["type"], each["number"]) for each in events] == [*zip(kinds, range(1, 6), strict=True)]
            assert events[2]["data"] == {"from_sidecar": events[0]["sidecar"]}
            assert [each["data"]["attempt"] for each in events if each["type"] == "execute_attempt"] == [1, 2]
            assert len({each["sidecar"] for each in events[2:]}) == 1
        assert verify(reader, public_keys(pair.sidecars[0].folder / ".fumehood")).fault is None


@pytest.mark.slow("waits until a sidecar counts as dead")
async def test_who_was_cut_off_has_the_outcome_of_who_went_on_and_what_nobody_can_go_on_with_stays_open(
    pair: Pair,
) -> None:
    other = pair.clients[1]
    put, kept = call("put", pair.arguments("cut", waits=True), call_id="cut"), call("keep", {}, call_id="kept")
    for each in (put, kept):
        each.retry.after_crash = True
    with contextlib.ExitStack() as stack:
        third = await asyncio.to_thread(start, stack, pair.folder.parent / "f", pair.folder, pair.url, alone=True)
        async with third.channel() as channel, asyncio.timeout(BOUND_S):
            client = ToolClient(third, channel)
            keeping = client.tools.StreamTool(pb.StreamToolRequest(call=kept))
            while not (await keeping.read()).HasField("update"):
                pass
            running = asyncio.ensure_future(client.tools.CallTool(put))
            while "cut:1" not in pair.entries():  # noqa: ASYNC110 - nothing tells what a tool has done
                await asyncio.sleep(0.01)
            third.signal(signal.SIGSTOP)
            cut_off(pair.url, "cut")
            pair.let_go("cut")  # its worker is not stopped, so that both attempts end
            result = (await other.tools.CallTool(put, timeout=BOUND_S)).result
            assert (result.details_json, result.attempts) == ("2", 2)
            third.signal(signal.SIGCONT)
            late = (await running).result
            assert (late.details_json, late.attempts, late.error.code) == ("2", 2, "")
            third.signal(signal.SIGKILL)
            third.wait()
    while True:
        left = (await other.tools.CallTool(kept, timeout=BOUND_S)).result.error
        if left.caused_by.code:
            break
    assert (left.code, left.retryable, left.caused_by.code) == ("TOOL_OUTCOME_UNKNOWN", True, "TOOL_NOT_FOUND")
    assert json.loads(left.details_json)["reason"] == "running_elsewhere"
    assert (await found(other, "kept")).state == pb.CALL_STATE_INTERRUPTED


def cut_off(url: str, call_id: str) -> None:
    """End the connection of the sidecar that runs a call."""
    with contextlib.closing(DatabasePlace(Database(url)).open_reader()) as reader:
        owner = reader.calls([call_id])[call_id].owner
    sql = (
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid::bigint = %s "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with psycopg.connect(url, autocommit=True) as admin:
        assert admin.execute(sql, (lock_key(owner) % (1 << 32),)).rowcount == 1


@contextlib.contextmanager
def followed(sidecar: Sidecar, path: Path) -> Iterator[Callable[[], list[int]]]:
    """Follows the journal from its beginning, in a process of its own. The positions that it has printed so far."""
    command = [*preloaded.PYTHON, "-m", "fumehood_server", "journal", "tail", "-f", "-n", "1000", "--json"]
    with path.open("wb") as lines:
        process = preloaded.Popen([*command, "--address", sidecar.target], stdout=lines, env=environment())
    try:
        yield lambda: [
            json.loads(line)["position"] for line in path.read_text().splitlines(keepends=True) if "\n" in line
        ]
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow("waits until a database is given up")
@pytest.mark.parametrize("how", ["restarted", "frozen"])
async def test_a_database_that_is_away_refuses_calls_with_effects_and_comes_back(
    tmp_path_factory: pytest.TempPathFactory, how: str
) -> None:
    with (
        running_server(kept_files(tmp_path_factory)) as server,
        short_folder() as folder,
        contextlib.ExitStack() as stack,
    ):
        url = server.new_database()
        sidecar = await asyncio.to_thread(start, stack, folder / "a", folder / "e", url, "required = false\n")
        async with sidecar.channel() as channel:
            client = ToolClient(sidecar, channel)
            health = health_pb2_grpc.HealthStub(channel)
            arguments = {"folder": str(folder / "e"), "line": "x"}

            async def code(tool: str) -> str:
                return (await client.tools.CallTool(call(tool, arguments), timeout=BOUND_S)).result.error.code

            async def serving(status: int) -> None:
                async with asyncio.timeout(BOUND_S):
                    request = health_pb2.HealthCheckRequest(service="journal")
                    while (await health.Check(request)).status != status:  # noqa: ASYNC110 - as is asked here
                        await asyncio.sleep(0.05)

            assert [await code("enter"), await code("look")] == ["", ""]
            printed = stack.enter_context(followed(sidecar, folder / "followed"))
            async with asyncio.timeout(BOUND_S):
                while not printed():  # noqa: ASYNC110 - another process prints them
                    await asyncio.sleep(0.05)
            with server.frozen() if how == "frozen" else contextlib.nullcontext():
                if how == "restarted":
                    await asyncio.to_thread(server.stop)
                load = [asyncio.ensure_future(code("enter")) for _ in range(20)]
                assert set(await asyncio.gather(*load)) <= {"CONFIG_JOURNAL_UNAVAILABLE", "TOOL_OUTCOME_UNKNOWN"}
                await serving(health_pb2.HealthCheckResponse.NOT_SERVING)
                assert [await code("enter"), await code("look")] == ["CONFIG_JOURNAL_UNAVAILABLE", ""]
            if how == "restarted":
                await asyncio.to_thread(server.start)
            await serving(health_pb2.HealthCheckResponse.SERVING)
            assert [await code("enter"), await code("look")] == ["", ""]
            stub: Any = JournalServiceStub(channel)
            size = int((await stub.ListEvents(jpb.ListEventsRequest(), timeout=BOUND_S)).journal_size)
            async with asyncio.timeout(BOUND_S):
                while len(positions := printed()) < size:  # noqa: ASYNC110 - another process prints them
                    await asyncio.sleep(0.05)
            assert positions[:size] == [*range(size)]
        sidecar.signal()
        assert await asyncio.to_thread(sidecar.wait) == 0
        with contextlib.closing(DatabasePlace(Database(url)).open_reader()) as reader:
            result = verify(reader, public_keys(sidecar.folder / ".fumehood"))
            counts = reader.counts()
            assert (result.fault, result.signed) == (None, result.events)
            assert counts.calls == counts.ended
            assert reader.last("events_lost") is None


def test_serving_without_psycopg_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text('[journal]\nstore = "postgresql://me@/journal"\n')
    hidden = "import sys; sys.modules['psycopg'] = None; from fumehood_server.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "serve", "--config", str(tmp_path / "fumehood.toml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_S,
    )
    assert done.returncode == 1
    assert '"./server[postgresql]" in a clone, or "fumehood-server[postgresql]" from an index' in done.stderr
