"""Arguments and results go after a time, and the journal is what was signed all the same."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path

import pytest
from fumehood_evidence.note import Signer
from fumehood_evidence.verification import verify as verify_bundle
from fumehood_server.journal.checkpoints import Checkpointer
from fumehood_server.journal.evidence import make_bundle
from fumehood_server.journal.place import Place
from fumehood_server.journal.retention import SLICE_PAYLOADS, Retention, prune_slice, remove_payloads
from fumehood_server.journal.sqlite import SqliteReader, SqliteStore
from fumehood_server.journal.verify import Verified, verify

from tests.cli.command import fumehood
from tests.rpc.support import ToolClient, call, text_of
from tests.sidecar import running_sidecar, write_plugin

from .bench import STARTED_US, entries, written
from .reading import BOUND_S, Recorded

SIGNER = Signer.generate("test/journal")
CALLS = 1_000
CODE = '''
from fumehood_sdk import Plugin

plugin = Plugin("dice", version="1.0.0")


@plugin.tool(side_effects="none", isolation="process")
def roll(sides: int = 6) -> int:
    """Rolls."""
    return sides
'''


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a thousand calls, each event a microsecond after the one before."""
    path = tmp_path / "journal.db"
    written(path, [[*entries(CALLS)]], SIGNER)
    return path


def verified(path: Path) -> Verified:
    with contextlib.closing(SqliteReader(path)) as reader:
        return verify(reader, [SIGNER.verifier])


def pages(path: Path) -> tuple[int, int]:
    """All, and those that are free."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return tuple(connection.execute(f"PRAGMA {each}").fetchone()[0] for each in ("page_count", "freelist_count"))


@pytest.fixture
def filled(place: Place) -> Place:
    """As `path`, in each of the databases."""
    written(place, [[*entries(CALLS)]], SIGNER)
    return place


def checked(place: Place) -> Verified:
    with contextlib.closing(place.open_reader()) as reader:
        return verify(reader, [SIGNER.verifier])


def test_what_is_older_goes_in_slices_and_what_is_not_stays(filled: Place) -> None:
    # Of the first 301 events, which are the start and a hundred calls; and of the start of one more.
    before_us = STARTED_US + 1 + 301 + 1
    with contextlib.closing(filled.open_store("0a")) as store:
        assert prune_slice(store, before_us, sidecar="0a") == 201
        assert prune_slice(store, before_us, sidecar="0a") == 0
        found = checked(filled)
        assert (found.fault, found.removed, found.payloads) == (None, 201, 2 * CALLS - 201)
        assert found.events == 3 * CALLS + 2
        removed = []
        while count := prune_slice(store, STARTED_US * 2, sidecar="0a"):
            removed.append(count)
        Checkpointer(SIGNER)(store)
    assert sum(removed) == 2 * CALLS - 201
    assert max(removed) == SLICE_PAYLOADS
    found = checked(filled)
    assert (found.fault, found.removed, found.payloads, found.signed) == (None, 2 * CALLS, 0, found.events)


def test_evidence_of_a_call_whose_payloads_are_gone_says_so(filled: Place) -> None:
    with contextlib.closing(filled.open_store("0a")) as store:
        prune_slice(store, STARTED_US + 300, sidecar="0a")
        Checkpointer(SIGNER)(store)
    with contextlib.closing(filled.open_reader()) as reader:
        gone = verify_bundle(make_bundle(reader, SIGNER, call_id="call-00000003"), [SIGNER.verifier])
        kept = verify_bundle(make_bundle(reader, SIGNER, call_id="call-00000903"), [SIGNER.verifier])
    assert (gone.payloads, kept.payloads) == (0, 2)
    assert any("2 arguments or results" in each and "not kept any more" in each for each in gone.not_proven)
    assert not any("arguments or results" in each for each in kept.not_proven)


def test_space_that_is_freed_is_used_again_and_given_back_when_asked_for(path: Path) -> None:
    before, _ = pages(path)
    with contextlib.closing(SqliteStore(path)) as store:
        while prune_slice(store, STARTED_US * 2, sidecar="0a"):
            pass
        _, free = pages(path)
        assert free >= 10
        store.write([*entries(5, first=CALLS)])
        assert pages(path)[0] == before
        store.shrink()
    after, free = pages(path)
    assert after < before
    assert free == 0
    assert verified(path).fault is None


def test_upkeep_removes_within_its_time_and_looks_again_later(path: Path) -> None:
    with contextlib.closing(SqliteStore(path)) as store:
        upkeep = Retention(1.0, remove_payloads, sidecar="0a")
        while upkeep(store) < 2:
            upkeep._due = 0.0
        assert upkeep(store) > 500
    assert verified(path).removed == 2 * CALLS


async def test_a_sidecar_removes_by_itself_and_says_so_to_who_repeats_a_call(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "plugin", "dice", CODE)
    recorded = Recorded(tmp_path)
    more = '[journal]\nstore = "sqlite"\nkeep_payloads_d = 0.00001\n'
    with running_sidecar([plugin], more=more, at=tmp_path) as sidecar:
        prune = ["journal", "prune", "--before", "0d", "--config", str(tmp_path / "fumehood.toml")]
        refused = fumehood(*prune, "--json")
        assert refused.status == 1
        assert refused.error["code"] == "JOURNAL_IN_USE"
        async with sidecar.channel() as channel:
            client = ToolClient(sidecar, channel)
            first = (await client.tools.CallTool(call("roll", call_id="one"))).result
            assert text_of(first) == "6"
            await recorded.call_until("one", "execute_end")
            async with asyncio.timeout(BOUND_S):
                while recorded.verified().removed < 2:
                    await client.tools.CallTool(call("roll"))
                    await asyncio.sleep(0.1)
            again = (await client.tools.CallTool(call("roll", call_id="one"))).result
            assert json.loads(again.error.details_json)["reason"] == "result_not_kept"
            await client.tools.CallTool(call("roll", call_id="last"))
    assert recorded.verified().fault is None
    done = fumehood(*prune, "--shrink", "--json")
    assert done.status == 0
    assert json.loads(done.stdout)["removed"] > 0
    found = recorded.verified()
    assert (found.fault, found.payloads, found.signed) == (None, 0, found.events)
    assert fumehood(*prune[:3], "yesterday", *prune[4:]).status == 2
