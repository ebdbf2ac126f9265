"""What the journal keeps of arguments and results is the operator's word, and never a secret."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_evidence.verification import verify as verify_bundle
from fumehood_server.journal.evidence import make_bundle
from fumehood_server.journal.keys import load_key
from fumehood_server.journal.sqlite import SqliteReader
from fumehood_server.secrets.forms import _written

from tests.rpc.support import ToolClient, call, refused, text_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin

from .reading import Recorded, data

VALUE = 's3cr3t/Käse+"quoted"=tail'
CODE = '''
from fumehood_sdk import Context, Plugin, ToolError

plugin = Plugin("keeper", version="1.0.0")


def said(text):
    if text == "fail":
        raise ToolError("failed with a word of its own")
    return "said " + text


@plugin.tool(side_effects="none", isolation="process")
def whole(text: str) -> str:
    """Says it."""
    return said(text)


@plugin.tool(side_effects="none", isolation="process")
def digest(text: str) -> str:
    """Says it."""
    return said(text)


@plugin.tool(side_effects="none", isolation="process")
def nothing(text: str) -> str:
    """Says it."""
    return said(text)


@plugin.tool(side_effects="none", isolation="process", requires=["secret:TOKEN"])
def secret(ctx: Context) -> str:
    """Never called."""
    return ctx.secret("TOKEN")
'''


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("keeper")
    (folder / "token").write_text(VALUE)
    (folder / "token").chmod(0o600)
    plugin = write_plugin(folder / "plugin", "keeper", CODE)
    lines = (
        '[plugin.tools.whole]\npayloads = "full"\n[plugin.tools.nothing]\npayloads = "off"\n'
        '[plugin.tools.secret]\nsecrets = ["TOKEN"]\n'
    )
    more = f'[journal]\nstore = "sqlite"\npayloads = "hash"\n[secrets.TOKEN]\nfile = "{folder}/token"\n'
    with running_sidecar([(plugin, lines)], more=more) as sidecar:
        yield sidecar


@pytest.fixture
async def client(sidecar: Sidecar) -> AsyncIterator[ToolClient]:
    async with sidecar.channel() as channel:
        yield ToolClient(sidecar, channel)


@pytest.fixture
def recorded(sidecar: Sidecar) -> Recorded:
    return Recorded(sidecar.folder)


def payloads(recorded: Recorded) -> list[bytes]:
    with contextlib.closing(sqlite3.connect(recorded.path)) as connection:
        return [each for (each,) in connection.execute("SELECT data FROM payloads")]


async def test_full_keeps_all_and_hash_the_digest_and_off_nothing(client: ToolClient, recorded: Recorded) -> None:
    found = {}
    for tool in ("whole", "digest", "nothing"):
        assert text_of((await client.tools.CallTool(call(tool, {"text": tool}, call_id=tool))).result) == f"said {tool}"
        events = await recorded.call_until(tool, "execute_end")
        found[tool] = (data(events, "execute_start")[0], data(events, "execute_end")[0]["result"])
    start, result = found["whole"]
    assert (start["payloads"], start["arguments"]["kept"], result["kept"]) == ("full", True, True)
    start, result = found["digest"]
    assert (start["payloads"], start["arguments"]["kept"], result["kept"]) == ("hash", False, False)
    assert len(start["arguments_hash"]) == len(result["sha256"]) == 64
    assert found["nothing"] == (found["nothing"][0], None)
    start = found["nothing"][0]
    assert (start["payloads"], start["arguments"], start["arguments_hash"]) == ("off", None, "")
    kept = b"".join(payloads(recorded))
    assert b"said whole" in kept
    assert b"said digest" not in kept
    assert b"said nothing" not in kept
    assert recorded.verified().fault is None


async def test_a_repeated_call_whose_result_was_not_kept_is_told_so_and_not_run(client: ToolClient) -> None:
    for name, code in (("good", "TOOL_UNAVAILABLE"), ("fail", "TOOL_EXECUTION_FAILED")):
        request = call("digest", {"text": name}, call_id=f"again-{name}")
        first = (await client.tools.CallTool(request)).result
        assert first.is_error is (name == "fail")
        again = (await client.tools.CallTool(request)).result
        details = json.loads(again.error.details_json)
        assert (again.error.code, again.error.retryable, again.attempts) == (code, False, 1)
        assert (details["reason"], details["code"]) == ("result_not_kept", "OK" if name == "good" else code)
        assert "a word of its own" not in again.error.message
        other = call("digest", {"text": "other"}, call_id=f"again-{name}")
        assert await refused(client.tools.CallTool(other)) == (grpc.StatusCode.ALREADY_EXISTS, "CALL_ID_IN_USE")
        answer = await client.tools.GetCall(pb.GetCallRequest(call_id=f"again-{name}"))
        assert (answer.state, answer.result_removed) == (pb.CALL_STATE_ENDED, True)


async def test_a_repeated_call_of_which_nothing_was_kept_is_refused(client: ToolClient) -> None:
    request = call("nothing", {"text": "x"}, call_id="unkept")
    await client.tools.CallTool(request)
    assert await refused(client.tools.CallTool(request)) == (grpc.StatusCode.ALREADY_EXISTS, "CALL_ID_IN_USE")
    answer = await client.tools.GetCall(pb.GetCallRequest(call_id="unkept"))
    assert (answer.state, answer.result.is_error, answer.result_removed) == (pb.CALL_STATE_ENDED, False, True)


async def test_an_error_is_as_private_as_a_result(client: ToolClient, recorded: Recorded) -> None:
    for tool, word in (("whole", True), ("digest", False), ("nothing", False)):
        await client.tools.CallTool(call(tool, {"text": "fail"}, call_id=f"error-{tool}"))
        events = await recorded.call_until(f"error-{tool}", "execute_end")
        assert ("a word of its own" in json.dumps(events)) is word


async def test_no_form_of_a_secret_that_the_plugin_may_read_is_recorded(client: ToolClient, recorded: Recorded) -> None:
    forms = sorted({form for form in _written(VALUE.encode()) if len(form) >= 8})
    assert len(forms) > 20
    for number, form in enumerate(forms):
        request = call("whole", {"text": f"before {form} after"}, call_id=f"secret-{number}")
        assert form in text_of((await client.tools.CallTool(request)).result)
    wrong = pb.CallToolRequest(tool="whole", arguments_json=json.dumps({"texts": VALUE}), call_id="secret-wrong")
    await client.tools.CallTool(wrong)
    await client.tools.CallTool(call("whole", {"text": "plain"}, call_id="secret-last"))
    await recorded.call_until("secret-last", "execute_end")
    kept = payloads(recorded)
    assert sum(b"before [secret TOKEN] after" in each for each in kept) >= len(forms)
    told = b"\n".join(kept) + json.dumps(recorded.call("secret-wrong")).encode()
    written = {*forms, *(json.dumps(form)[1:-1] for form in forms)}
    written |= {json.dumps(form, ensure_ascii=False)[1:-1] for form in written}
    assert [form for form in written if form.encode() in told] == []
    again = call("whole", {"text": f"before {forms[0]} after"}, call_id="secret-0")
    assert text_of((await client.tools.CallTool(again)).result) == "said before [secret TOKEN] after"


async def test_evidence_says_what_was_not_kept_and_why(client: ToolClient, recorded: Recorded) -> None:
    signer = load_key(recorded.state)
    for tool, words in (("digest", "2 arguments or results"), ("nothing", "nothing of it")):
        await client.tools.CallTool(call(tool, {"text": "evident"}, call_id=f"evident-{tool}"))
        await recorded.call_until(f"evident-{tool}", "execute_end")
        await recorded.until(lambda: [{}] if recorded.verified().signed == recorded.verified().events else [])
        with contextlib.closing(SqliteReader(recorded.path)) as reader:
            bundle = make_bundle(reader, signer, call_id=f"evident-{tool}")
        not_proven = verify_bundle(bundle, [signer.verifier]).not_proven
        assert any(words in each and "policy" in each for each in not_proven), not_proven
