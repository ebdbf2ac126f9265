"""No secret of a plugin's comes to a hook or into what is recorded of it, in either kind of journal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from fumehood.v1 import hook_service_pb2 as hpb
from fumehood.v1 import journal_service_pb2 as jpb
from fumehood.v1.journal_service_pb2_grpc import JournalServiceStub

from tests.hooks.support import BOUND_S, Client, Question, allow, client_of, deny, details, result, text
from tests.postgresql import PostgresServer
from tests.sidecar import Sidecar, running_sidecar, write_plugin

VALUE = 's3cr3t/Käse+"quoted"=tail'
MASK = "[secret key]"
FORMS = (VALUE, json.dumps(VALUE)[1:-1], json.dumps(VALUE, ensure_ascii=False)[1:-1])
CODE = """
from pydantic import BaseModel
from fumehood_sdk import Context, Plugin, ToolError

plugin = Plugin("vault", version="1.0.0")


class Said(BaseModel):
    said: str
    kept: str


@plugin.tool(side_effects="none", isolation="process", requires=["secret:key"])
def tell(text: str, ctx: Context, note: str = "") -> Said:
    \"\"\"Says it, and the secret.\"\"\"
    if text == "fail":
        raise ToolError("no luck with " + ctx.secret("key"))
    return Said(said=text, kept=ctx.secret("key"))
"""
PARROT = """
from fumehood_sdk import Plugin, Text, ToolError

plugin = Plugin("parrot", version="1.0.0")


@plugin.tool(side_effects="none", isolation="process", requires=["secret:key"])
def repeat(text: str, fails: bool = False) -> Text:
    \"\"\"Never asks for the secret.\"\"\"
    if fails:
        raise ToolError("no luck with " + text)
    return Text(text)
"""
HOOKS = """
[secrets.key]
file = "{folder}/key"
[journal]
store = "{store}"
[[hook]]
name = "look"
timeout_s = 3
stages = ["before", "after"]
"""


class Kept:
    """All that lies in a journal."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder / ".fumehood"
        self._url = url

    def bytes(self) -> bytes:
        if not self._url:
            with contextlib.closing(sqlite3.connect(self._folder / "journal.db")) as database:
                database.execute("PRAGMA wal_checkpoint")
            return b"".join(each.read_bytes() for each in self._folder.glob("journal.db*"))
        with psycopg.connect(self._url) as connection:
            names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
            rows = [row for (name,) in names for row in connection.execute(f'SELECT * FROM "{name}"').fetchall()]  # type: ignore[arg-type] # of its own tables # noqa: S608
        return b"\n".join(each if isinstance(each, bytes) else str(each).encode() for row in rows for each in row)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def vault(request: pytest.FixtureRequest) -> Iterator[tuple[Sidecar, Kept]]:
    url = ""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.new_database()
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "key").write_text(VALUE)
        (folder / "key").chmod(0o600)
        grants = '[plugin.tools.{}]\nsecrets = ["key"]\npayloads = "full"\n'
        plugins = [
            (write_plugin(folder / name, name, code), grants.format(tool))
            for name, code, tool in (("vault", CODE, "tell"), ("parrot", PARROT, "repeat"))
        ]
        with running_sidecar(plugins, more=HOOKS.format(folder=folder, store=url or "sqlite"), at=folder) as sidecar:
            yield sidecar, Kept(folder, url)


@pytest_asyncio.fixture
async def client(vault: tuple[Sidecar, Kept]) -> AsyncIterator[Client]:
    async with client_of(vault[0]) as made:
        yield made


async def decided(sidecar: Sidecar, last: str) -> list[dict[str, Any]]:
    """What hooks have said, once the last choice is recorded."""
    wanted = jpb.ListEventsRequest(filter=jpb.EventFilter(types=["hook_decided"]))
    async with asyncio.timeout(BOUND_S), sidecar.channel() as channel:
        journal: Any = JournalServiceStub(channel)
        while True:
            found = [json.loads(each.body_json)["data"] for each in (await journal.ListEvents(wanted)).events]
            if last in {each["choice"] for each in found}:
                return found
            await asyncio.sleep(0.01)


async def test_a_hook_is_shown_neither_arguments_nor_results_nor_failures_with_a_secret(client: Client) -> None:
    async with client.serving("look") as look:
        found = await client.call("repeat", text=f"say {VALUE}")
        failed = await client.call("repeat", text=VALUE, fails=True)
        taken = await client.call("tell", text="x")
    assert text(found) == f"say {VALUE}", "its caller is told what it knows"
    assert VALUE in failed.error.message
    assert not taken.is_error
    before, after, _, failure, _, handed = look.asked
    assert json.loads(before.call.arguments_json)["text"] == f"say {MASK}"
    assert after.result.content[0].text == f"say {MASK}"
    assert MASK in failure.result.error.message
    assert json.loads(handed.result.details_json)["kept"] == MASK
    shown = b"".join(each.SerializeToString() for each in look.asked)
    assert [form for form in FORMS if form.encode() in shown] == []


async def test_what_a_hook_changes_where_it_was_not_shown_all_is_refused(client: Client) -> None:
    def change(question: Question) -> hpb.HookAnswer:
        if question.HasField("result"):
            return allow(question)
        changed = {**json.loads(question.call.arguments_json), "note": "seen"}
        escaped = json.dumps(changed).replace("[", "\\u005b")
        return hpb.HookAnswer(change_arguments=hpb.HookChangeArguments(arguments_json=escaped))

    async with client.serving("look", change):
        refused = await client.call("tell", text=f"say {VALUE}")
        assert (refused.error.code, details(refused)["reason"]) == ("TOOL_UNAVAILABLE", "hook_failed")
        assert MASK in refused.error.message
        # Where nothing was taken out the text is one as any.
        assert not (await client.call("tell", text="plain")).is_error
        assert not (await client.call("tell", text=MASK)).is_error


async def test_nothing_that_is_recorded_of_a_hook_has_a_secret(client: Client, vault: tuple[Sidecar, Kept]) -> None:
    async with client.serving("look", deny(f"it has {VALUE} in it")):
        denied = await client.call("repeat", "denied", text=f"say {VALUE}")
        assert details(denied)["reason"] == "hook_denied"
    async with client.serving("look", result("changed", reason=f"for {VALUE}")):
        found = await client.call("repeat", "changed", text=f"say {VALUE}")
        assert text(found) == "changed"
    async with client.serving("look", lambda asked: None if asked.HasField("result") else allow(asked)):
        gone = await client.call("repeat", "gone", text=f"say {VALUE}")
        assert details(gone)["reason"] == "hook_gone"
    said = await decided(vault[0], "gone")
    assert {(each["choice"], each["reason"]) for each in said} >= {
        ("deny", f"it has {MASK} in it"),
        ("change", f"for {MASK}"),
        ("gone", "timeout"),
    }
    kept = vault[1].bytes()
    assert MASK.encode() in kept
    assert [form for form in FORMS if form.encode() in kept] == []
