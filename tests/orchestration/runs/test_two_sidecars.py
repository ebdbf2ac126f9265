"""Two sidecars on one PostgreSQL: each run is carried out by one of them, and by the other once that one is dead."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import psycopg
import pytest
from fumehood_server.journal.postgres.ownership import lock_key

from tests.orchestration.scripted import ScriptedModel
from tests.postgresql import PostgresServer
from tests.rpc.support import reason_of
from tests.sidecar import Sidecar

from .bench import asked, model_sidecar, run, runs_of
from .test_stopping import begun

BOUND_S = 30.0


@pytest.fixture
def pair(
    postgres_server: PostgresServer, scripted_model: ScriptedModel, tmp_path: Path
) -> Iterator[tuple[Sidecar, Sidecar, str]]:
    url = postgres_server.new_database()
    with contextlib.ExitStack() as stack:
        two = [
            stack.enter_context(
                model_sidecar(
                    scripted_model,
                    tmp_path,
                    more=f'[journal]\nstore = "{url}"\n',
                    at=Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fh-"))),
                )
            )
            for _ in range(2)
        ]
        yield two[0], two[1], url


async def test_one_of_two_that_get_a_request_at_once_carries_it_out(
    pair: tuple[Sidecar, Sidecar, str], scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    async with runs_of(pair[0]) as one, runs_of(pair[1]) as two:
        for number in range(8):
            scripted_model.clear()
            let_go = tmp_path / f"signals/let-go-{number}"
            note = {"path": str(tmp_path / "notes/a"), "text": str(number)}
            scripted_model.calls(("note", note), ("hold", {"path": str(let_go)}))
            scripted_model.says("Noted.")
            request = asked(request_id=f"both-{number}")
            tasks = [asyncio.create_task(run(each, request)) for each in (one, two)]
            (refused,), (other,) = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await refused
            assert reason_of(caught.value) == "RUN_ELSEWHERE"
            let_go.touch()
            done = await other
            assert len(scripted_model.requests()) == 2, "nothing was asked twice"
            assert await run(one, request) == done == await run(two, request)
    assert (tmp_path / "notes/a").read_text().split() == [str(number) for number in range(8)]


async def test_another_goes_on_once_the_one_that_carries_it_out_is_dead(
    pair: tuple[Sidecar, Sidecar, str], scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    let_go = tmp_path / "signals/let-go"
    scripted_model.calls(("note", {"path": str(tmp_path / "notes/a"), "text": "one"}))
    scripted_model.calls(("hold", {"path": str(let_go)}))
    scripted_model.says("Noted, and waited.")
    request = asked(request_id="left")
    async with runs_of(pair[0]) as one, runs_of(pair[1]) as two:
        await begun(one, request)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await run(two, request)
        assert reason_of(caught.value) == "RUN_ELSEWHERE"
        pair[0].signal(signal.SIGKILL)
        await asyncio.to_thread(pair[0].wait)
        let_go.touch()
        response = None
        async with asyncio.timeout(BOUND_S):
            while response is None:  # until the server has seen that the dead one's connection ended
                with contextlib.suppress(grpc.aio.AioRpcError):
                    response = await run(two, request)
    assert (response.content, response.state) == ("Noted, and waited.", "COMPLETE")
    assert (tmp_path / "notes/a").read_text() == "one\n"
    assert len(scripted_model.requests()) == 3


async def test_one_that_was_taken_for_dead_ends_nothing_that_another_goes_on_with(
    pair: tuple[Sidecar, Sidecar, str], scripted_model: ScriptedModel
) -> None:
    scripted_model.says("Late.", latency=4_000)
    scripted_model.says("In time.")
    request = asked(request_id="cut-off")
    async with runs_of(pair[0]) as one, runs_of(pair[1]) as two:
        first = asyncio.create_task(run(one, request))
        await scripted_model.arrived(1)
        pair[0].signal(signal.SIGSTOP)
        try:
            cut_off(pair[2])
            response = await run(two, request)
        finally:
            pair[0].signal(signal.SIGCONT)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await first
        assert reason_of(caught.value) == "RUN_ELSEWHERE"
        assert response.content == "In time."
        assert await run(one, request) == response == await run(two, request)


def cut_off(url: str) -> None:
    """End the connections that have recorded a run that has no end."""
    with psycopg.connect(url, autocommit=True) as database:
        rows = database.execute(
            "SELECT convert_from(body, 'UTF8')::json ->> 'sidecar' FROM fumehood.events WHERE type = 'run_started'"
        ).fetchall()
        for (sidecar,) in rows:
            database.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' "
                "AND objid::bigint = %s",
                (lock_key(sidecar) % (1 << 32),),
            )
