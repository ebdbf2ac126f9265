"""A sidecar that is cut off from the database, and a database that is away: nothing is done twice or lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fumehood.v1 import journal_service_pb2 as jpb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub
from fumehood_server.config.database import Database
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.place import DatabasePlace
from fumehood_server.journal.postgres.ownership import lock_key
from fumehood_server.journal.verify import verify
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests import preloaded
from tests.cli.command import environment
from tests.postgresql import kept_files, running_server
from tests.rpc.support import ToolClient, call
from tests.sidecar import Sidecar

from .two_sidecars import BOUND_S, Pair, found, short_folder, start


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
