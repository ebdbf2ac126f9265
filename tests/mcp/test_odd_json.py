"""Servers whose JSON is odd: half a character, names that are lists, endless numbers. Only the call at fault fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood.v1 import plugin_pb2 as pb
from fumehood_sdk.adapters.mcp.messages import PROBLEM_KEY, read_message
from hypothesis import given
from hypothesis import strategies as st

from tests.mcp.adapter_process import AdapterProcess, adapter_process

CODE = """
import json, sys
REVISION, FIRST, LISTED = %r, %r, %r
waiting = asking = None
lists = 0
def write(text):
    print(text, flush=True)
def send(**said):
    write(json.dumps({"jsonrpc": "2.0", **said}))
def answer(number, text):
    send(id=number, result={"content": [{"type": "text", "text": text}]})
for line in sys.stdin:
    got = json.loads(line)
    method, number = got.get("method"), got.get("id")
    if method == ("server/discover" if REVISION == "2026-07-28" else "initialize"):
        write(FIRST.replace('"NUMBER"', str(number)))
    elif method == "tools/list":
        lists += 1
        listed = LISTED if lists > 1 else ""
        tools = '{"name":"raw"},{"name":"wait"},{"name":"change"}' + listed
        write('{"jsonrpc":"2.0","id":%%d,"result":{"tools":[%%s]}}' %% (number, tools))
    elif method == "tools/call":
        tool = got["params"]["name"]
        if tool == "wait":
            waiting = number
        elif tool == "change":
            send(method="notifications/tools/list_changed")
        else:
            asking = number
            text, digits, depth = got["params"]["arguments"]["text"], "9" * 1_000_000, 50_000
            text = text.replace('"DIGITS"', digits).replace('"DEEP"', "[" * depth + "]" * depth)
            write(text.replace('"NUMBER"', str(number)))
            if waiting is not None:
                answer(waiting, "waited")
                waiting = None
    elif method is None:
        answer(asking, json.dumps(got.get("error") or got.get("result")))
    elif number is not None:
        send(id=number, error={"code": -32601, "message": "no method"})
"""
OLD: dict[str, object] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
NEW: dict[str, object] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
HALF = "\ud800"


def code(revision: str, *, listed: str = "", **more: object) -> str:
    """A server's. `listed` is the title of a tool's schema that it lists from the second time on."""
    first = {"jsonrpc": "2.0", "id": "NUMBER", "result": {**(NEW if revision == "2026-07-28" else OLD), **more}}
    tool = {"name": "more", "inputSchema": {"type": "object", "title": listed}}
    return CODE % (revision, json.dumps(first), f",{json.dumps(tool)}" if listed else "")


REVISIONS = ["2025-11-25", "2026-07-28"]


@pytest.fixture(scope="module", params=REVISIONS)
def adapter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdapterProcess]:
    """One of each revision, whose process the tests share: it goes on whatever its server says."""
    with adapter_process(tmp_path_factory.mktemp("odd"), code(request.param)) as made:
        yield started(made)


def started(adapter: AdapterProcess) -> AdapterProcess:
    frame = adapter.read()
    assert frame is not None, adapter.last_words()
    assert frame.HasField("ready")
    return adapter


def raw(**message: object) -> str:
    """Arguments of the tool `raw`, which writes this."""
    return json.dumps({"text": json.dumps(message)})


def answered(**result: object) -> str:
    return raw(jsonrpc="2.0", id="NUMBER", result=result)


def asked(requests: object, **more: object) -> str:
    return answered(resultType="input_required", inputRequests=requests, **more)


def form(title: str) -> dict[str, object]:
    params = {"message": "Who?", "requestedSchema": {"type": "object", "title": title}}
    return {"method": "elicitation/create", "params": params}


GOOD = answered(content=[])


@pytest.mark.parametrize(
    "arguments",
    [
        asked({HALF: {"method": "roots/list"}}),
        asked({}, requestState=HALF),
        asked({"a": form(HALF)}),
        answered(resultType="task", task={"taskId": "1", "status": "working"}),
        answered(resultType="weird", content=[]),
        answered(resultType=["complete"], content=[]),
        answered(task={"taskId": "1", "status": "working"}),
        answered(),
        answered(content=[], structuredContent={"a": float("nan")}),
        answered(content=[], structuredContent=["1e400"]).replace('\\"1e400\\"', "1e400"),
        answered(content=[], structuredContent={"a": HALF}),
        answered(content=[], structuredContent="DIGITS"),
        answered(content=[], structuredContent="DEEP"),
        raw(result={"content": [], "structuredContent": "DIGITS"}, jsonrpc="2.0", id="NUMBER"),
        raw(result="DEEP", id="NUMBER", jsonrpc="2.0"),
        raw(id="NUMBER", error={"code": "DIGITS"}),
    ],
    ids=[
        "key",
        "state",
        "form",
        "task",
        "type",
        "type_list",
        "old_task",
        "nothing",
        "nan",
        "infinity",
        "details",
        "digits",
        "depth",
        "digits_first",
        "depth_first",
        "error",
    ],
)
def test_answer_that_is_none_fails_its_call_alone(adapter: AdapterProcess, arguments: str) -> None:
    beside = adapter.begin("wait")
    odd = adapter.begin("raw", arguments)
    results: dict[int, pb.Result] = {}
    while len(results) < 2:
        frame = adapter.read()
        assert frame is not None, adapter.last_words()
        results[frame.result.invocation_id] = frame.result
    assert results[odd].error.reason == "invalid_result", results[odd]
    assert results[beside].content[0].text == "waited"


@pytest.mark.parametrize("kind", [{}, {"resultType": "complete"}, {"resultType": None}])
def test_structured_content_alone_is_a_result_and_null_in_it_is_kept(
    adapter: AdapterProcess, kind: dict[str, object]
) -> None:
    result = adapter.call("raw", answered(structuredContent={"a": None, "b": 1e300}, **kind))
    assert not result.HasField("error"), result
    assert json.loads(result.details_json) == {"a": None, "b": 1e300}


@pytest.mark.parametrize("requests", [{}, {"a": {"method": "roots/list"}}], ids=["nothing", "roots"])
def test_tool_that_asks_for_ever_is_told_so(adapter: AdapterProcess, requests: object) -> None:
    error = adapter.call("raw", asked(requests, requestState="s")).error
    assert (error.reason, error.message) == (
        "input_refused",
        "the tool asked its client more than 10 times in one call",
    )
    assert not adapter.call("raw", GOOD).HasField("error")


@pytest.mark.parametrize("method", [[1], {}, 1, None])
def test_request_whose_method_is_no_word_is_refused(adapter: AdapterProcess, method: object) -> None:
    result = adapter.call("raw", asked({"a": {"method": method}}))
    assert result.error.reason == "input_refused"
    assert not adapter.call("raw", GOOD).HasField("error")


def test_whole_pair_is_a_character_and_half_of_one_in_a_text_a_question_mark(adapter: AdapterProcess) -> None:
    for said, expected in (("😀", "😀"), (HALF, "?")):
        result = adapter.call("raw", answered(content=[{"type": "text", "text": said}]))
        assert result.content[0].text == expected
    result = adapter.call("raw", answered(content=[], structuredContent={"😀": 1}))
    assert json.loads(result.details_json) == {"😀": 1}


@pytest.mark.parametrize("title", [HALF, "whole"])
def test_question_with_half_a_character_is_refused_as_invalid_and_its_call_goes_on(tmp_path: Path, title: str) -> None:
    with adapter_process(tmp_path, code("2025-11-25")) as adapter:
        started(adapter).begin("raw", raw(id="ask", **form(title)))
        frame = adapter.read()
        assert frame is not None, adapter.last_words()
        if title == "whole":
            assert frame.question.message == "Who?"
            return
        assert "half of a surrogate pair" in frame.update.message
        frame = adapter.read()
        assert frame is not None
        assert "(invalid)" in json.loads(frame.result.content[0].text)["message"]


@pytest.mark.parametrize("line", ['{"method":{}}', '{"id":[1],"method":"ping"}', '{"id":{},"result":{}}', '"DEEP"'])
def test_line_that_names_no_call_harms_none(adapter: AdapterProcess, line: str) -> None:
    text = f"{line}\n{json.loads(GOOD)['text']}"
    assert not adapter.call("raw", json.dumps({"text": text})).HasField("error")


@pytest.mark.parametrize("listed", [HALF, "whole"])
def test_list_one_of_whose_schemas_cannot_be_written_is_listed(tmp_path: Path, listed: str) -> None:
    with adapter_process(tmp_path, code("2025-11-25", listed=listed)) as adapter:
        started(adapter).begin("change")
        assert not adapter.call("raw", GOOD).HasField("error")
    with adapter_process(tmp_path, code("2025-11-25", listed=listed).replace("lists > 1", "True")) as adapter:
        assert not started(adapter).call("raw", GOOD).HasField("error")


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("meta", [[1], "a", {}, {"io.modelcontextprotocol/serverInfo": {"name": [1]}}])
def test_server_that_says_odd_things_of_itself_is_served(tmp_path: Path, revision: str, meta: object) -> None:
    with adapter_process(tmp_path, code(revision, _meta=meta)) as adapter:
        assert not started(adapter).call("raw", GOOD).HasField("error")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.integers(0, 10**17), JSON, st.permutations(["jsonrpc", "id", "result"]), st.booleans())
def test_id_of_an_answer_that_cannot_be_read_is_found_wherever_it_stands(
    number: int, result: object, order: list[str], loose: bool
) -> None:
    answer = {"jsonrpc": "2.0", "id": number, "result": [result, "DIGITS"]}
    written = json.dumps({key: answer[key] for key in order}, separators=None if loose else (",", ":"))
    line = written.replace('"DIGITS"', "9" * 5000).encode()
    found = read_message(line)
    assert found is not None
    assert found["id"] == number
    assert found[PROBLEM_KEY]


@given(st.binary(max_size=400) | st.text(max_size=100).map(lambda text: json.dumps({"id": 1, "a": text}).encode()))
def test_no_line_is_too_odd_to_be_read(line: bytes) -> None:
    found = read_message(line)
    assert found is None or isinstance(found, dict)
