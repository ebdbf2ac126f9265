"""docs/protocol.md against the code: its words, its numbers, its bytes, and the plugin that it ends with."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1 import plugin_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as rpc
from fumehood_sandbox import Limits
from fumehood_server.calls import deadlines
from fumehood_server.config.config_file import ServerTable
from fumehood_server.egress import Reason as EgressReason
from fumehood_server.journal.query import Bounds
from fumehood_server.model.event_types import EVENTS
from fumehood_server.plugins.manifest_file import PluginTable
from fumehood_server.rpc import (
    admission,
    cancelling,
    journal_events,
    journal_requests,
    journal_service,
    journal_watching,
    paging,
    plugin_service,
    result_messages,
    tool_filter,
)
from fumehood_server.rpc.status import REFUSALS
from fumehood_server.secrets import source
from fumehood_server.validation import budget, documents, normaliser, process, strict_json
from fumehood_server.workers import settings
from fumehood_server.workers.faults import EscalationStep, Violation
from fumehood_server.workers.output import stderr
from fumehood_server.workers.process import frame_dispatch
from fumehood_server.workers.process import requests as router
from fumehood_server.workers.wire import FrameDecoder, frame_reader, messages

from tests.examples.test_plugins import needs_node
from tests.sidecar import running_sidecar

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text()
SOURCES = {
    path: path.read_text()
    for path in sorted((ROOT / "server" / "fumehood_server").rglob("*.py"))
    if "cli" not in path.relative_to(ROOT).parts
}
NODE_MODULES = ROOT / "examples" / "plugins" / "regex-node" / "node_modules"
TIMEOUT_S = 60


def section(title: str) -> str:
    """The text from one heading, or from any other line that begins so, to the next heading."""
    start = PAGE.index(f"\n{title}")
    end = re.compile(r"^#+ ", re.MULTILINE).search(PAGE, start + len(title) + 1)
    return PAGE[start : end.start() if end else len(PAGE)]


def rows(text: str) -> list[list[str]]:
    """The cells of a table's body, that of the first table in the text."""
    lines = text[text.index("\n|") + 1 :].split("\n\n", 1)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:] if line.startswith("|")]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def first_words(text: str) -> set[str]:
    return {word for row in rows(text) for word in words(row[0])}


def found(pattern: str) -> set[str]:
    return {match for text in SOURCES.values() for match in re.findall(pattern, text)}


def sent_codes() -> set[str]:
    """Error codes that something sends: those that stand elsewhere than in their own table."""
    texts = [text for path, text in SOURCES.items() if path.name != "taxonomy.py"]
    return {match for text in texts for match in re.findall(r"\bCode\.([A-Z]+_[A-Z_]+)", text)}


def test_every_code_that_can_be_sent_is_listed_and_no_other() -> None:
    assert first_words(section("## 3.1")) == sent_codes()


def test_every_violation_is_listed_and_no_other() -> None:
    assert first_words(section("Violations, the values")) == set(Violation)


def test_every_refusal_is_listed_with_its_status_and_no_other() -> None:
    listed = {words(row[0])[0]: words(row[1])[0] for row in rows(section("## 2.1"))}
    assert listed == {reason.value: row.code.name for reason, row in REFUSALS.items()}


def test_every_reason_for_being_unavailable_is_listed_and_no_other() -> None:
    before_serving = {"starting"}  # no caller is there to be told
    assert first_words(section("## 3.3")) == found(r'Reason\(\s*"([a-z_]+)"') - before_serving


def test_every_word_of_a_failed_request_is_listed_as_retryable_or_not() -> None:
    listed = {}
    for row in rows(section("## 3.7")):
        names = words(row[0])
        answers = row[1].split(", ") if ", " in row[1] else [row[1]] * len(names)
        listed |= dict(zip(names, answers, strict=True))
    ours = found(r'PluginRequestError\(\s*"([a-z_]+)"') - {"secret_not_granted"}  # told in words alone
    assert set(listed) == set(EgressReason) | ours
    assert {reason: listed[reason] for reason in EgressReason} == {
        reason: "yes" if reason.retryable else "no" for reason in EgressReason
    }


def test_every_phase_is_listed_and_no_other() -> None:
    assert first_words(section("The phases of")) == found(r'"phase": "(\w+)"') | {"call", "start"}


def test_every_type_of_event_is_listed_and_no_other() -> None:
    assert first_words(section("## 2.5")) == set(EVENTS)


def test_every_way_to_end_a_call_is_listed() -> None:
    told = section("## 3.1")
    assert [step for step in (*EscalationStep, "result") if f"`{step}`" not in told] == []


def _details_keys() -> Iterator[str]:
    """Keys of the dict displays that are an error's `details`, or are put into them."""
    for text in SOURCES.values():
        for node in ast.walk(ast.parse(text)):
            value: ast.expr | None = None
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "CallError":
                value = next((each.value for each in node.keywords if each.arg == "details"), None)
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Subscript) and getattr(target.value, "id", "") == "details":
                    yield ast.literal_eval(target.slice)
                elif getattr(target, "id", "") == "details":
                    value = node.value
            if isinstance(value, ast.Dict):
                yield from (key.value for key in value.keys if isinstance(key, ast.Constant))


def test_every_key_of_an_errors_details_is_listed() -> None:
    told = section("## 3.1")
    keys = set(_details_keys()) - {"cancel_reason"}  # the worker's word to the executor, which gives the error its own
    assert len(keys) > 20
    assert [key for key in sorted(keys) if f"`{key}`" not in told] == []


MIB = 1 << 20
KIB = 1 << 10
LIMITS = Limits()


@pytest.mark.parametrize(
    ("title", "row", "told", "kept"),
    [
        ("## 3.5", "one frame", "4 MiB", settings.MAX_FRAME_BYTES == 4 * MIB),
        (
            "## 3.5",
            "fields of a frame",
            "12,288; 20,480 in `Ready`",
            (frame_dispatch.MAX_FIELDS, frame_dispatch.MAX_READY_FIELDS) == (12_288, 20_480),
        ),
        ("## 3.5", "fields of a frame over 64 KiB", "12,288", frame_reader.UNCOUNTED_BYTES == 64 * KIB),
        ("## 3.5", "arguments of a call", "1 MiB", ServerTable().max_arguments_bytes == MIB),
        ("## 3.5", "nesting", "64", strict_json.MAX_DEPTH == 64),
        (
            "## 3.5",
            "defaults that are filled in",
            "2 MiB",
            (budget.PROCESS.filled_bytes, normaliser.MAX_NORMALISED_CHARS) == (2 * MIB, 3 * MIB + 512 * KIB),
        ),
        ("## 3.5", "validating one", "10 s", process.CPU_S == 10),
        ("## 3.5", "validating one", "512 MiB", process.MEMORY_BYTES == 512 * MIB),
        ("## 3.5", "`Update.message`", "8 KiB", messages.MAX_LINE_BYTES == 8 * KIB),
        ("## 3.5", "`Update.data_json`", "64 KiB", messages.MAX_UPDATE_DATA_BYTES == 64 * KIB),
        ("## 3.5", "`Log.fields_json`", "8 KiB", messages.MAX_LINE_BYTES == 8 * KIB),
        ("## 3.5", "`Result.content`", "1,024", messages.MAX_BLOCKS == 1024),
        ("## 3.5", "`Ready.tools`", "1,024", messages.MAX_TOOLS == 1024),
        ("## 3.5", "`ToolFailure.message`", "4,096", messages.MAX_FAILURE_CHARACTERS == 4096),
        ("## 3.5", "`ToolFailure.details_json`", "60,000", messages.MAX_FAILURE_DETAILS_BYTES == 60_000),
        ("## 3.5", "updates of one call", "100,000", settings.MAX_UPDATES == 100_000),
        ("## 3.5", "log lines", "2,000 at once, 200/s", (stderr.LINES_BURST, stderr.LINES_PER_SECOND) == (2000, 200)),
        ("## 3.5", "requests of one call at a time", "8", router.MAX_UNDER_WAY == 8),
        ("## 3.5", "requests of one call in all", "10,000", router.MAX_REQUESTS == 10_000),
        ("## 3.5", "answers that a process", "4 MiB", router.MAX_UNREAD_BYTES == 4 * MIB),
        (
            "## 3.5",
            "a secret",
            "8 bytes to 64 KiB",
            (source.MIN_SECRET_BYTES, source.MAX_SECRET_BYTES) == (8, 64 * KIB),
        ),
        ("## 3.5", "calls at once in one process", "32", PluginTable.model_fields["concurrency"].default == 32),
        ("## 3.5", "frames to a process", "8 MiB", settings.MAX_UNSENT_BYTES == 8 * MIB),
        ("## 3.5", "calls at once in the sidecar", "256", ServerTable().max_concurrent_calls == 256),
        ("## 3.5", "calls at once in one `Session`", "128", ServerTable().max_concurrent_calls // 2 == 128),
        ("## 3.5", "each field of `context`", "256 bytes", admission.MAX_CONTEXT_BYTES == 256),
        ("## 3.5", "each field of `context`", "256 bytes", admission.MAX_NAME_BYTES == 256),
        ("## 3.5", "each field of `context`", "256 bytes", cancelling.MAX_REASON_BYTES == 256),
        ("## 3.5", "names in", "1,000", tool_filter.MAX_NAMES == 1000),
        (
            "## 3.5",
            "`lines` of",
            "1,000; 0 means 100",
            (plugin_service.MAX_LINES, plugin_service.DEFAULT_LINES) == (1000, 100),
        ),
        (
            "## 3.5",
            "`ListEvents` at",
            "8 of one TCP connection, 24 of all, 24 of unix sockets, 32 in all",
            (journal_service.MAX_LISTINGS_OF_CONNECTION, journal_service.MAX_LISTINGS) == (8, 32),
        ),
        (
            "## 3.5",
            "`WatchEvents`",
            "16 of one TCP connection, 48 of all, 48 of unix sockets, 64 in all",
            (journal_service.MAX_WATCHERS_OF_CONNECTION, journal_service.MAX_WATCHERS) == (16, 64),
        ),
        (
            "## 3.5",
            "`VerifyJournal`",
            "1 of one TCP connection, 3 of all, 3 of unix sockets, 4 in all",
            journal_service.MAX_VERIFICATIONS == 4,
        ),
        (
            "## 3.5",
            "events that a watcher",
            "10,000 (`max_lag`, up to 1,000,000)",
            (journal_watching.DEFAULT_LAG, journal_watching.MAX_LAG) == (10_000, 1_000_000),
        ),
        ("## 3.5", "a payload that is sent", "1 MiB", journal_events.MAX_PAYLOAD_BYTES == MIB),
        ("## 3.5", "`types`, `outcomes`", "64 each", journal_requests.MAX_NAMES == 64),
        ("## 3.6", "`memory_bytes`", "2 GiB", LIMITS.memory_bytes == 2 << 30),
        ("## 3.6", "`cpu_s`", "600", LIMITS.cpu_s == 600),
        ("## 3.6", "`processes`", "64", LIMITS.processes == 64),
        ("## 3.6", "`open_files`", "1024", LIMITS.open_files == 1024),
        ("## 3.6", "`file_size_bytes`", "64 MiB", LIMITS.file_size_bytes == 64 * MIB),
        ("## 3.6", "`scratch_bytes`", "64 MiB", LIMITS.scratch_bytes == 64 * MIB),
        ("## 3.6", "`scratch_files`", "4096", LIMITS.scratch_files == 4096),
        ("## 3.6", "`cpus`", "1", LIMITS.cpus == 1),
    ],
)
def test_a_limit_is_what_the_page_says(title: str, row: str, told: str, *, kept: bool) -> None:
    (cells,) = (cells for cells in rows(section(title)) if cells[0].startswith(row))
    assert told in cells[1]
    assert kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("`Ready` | within 10 s", settings.START_TIMEOUT_S == 10),
        ("a wait of 0.25 s that doubles up to 30 s", (settings.BACKOFF_FIRST_S, settings.BACKOFF_LAST_S) == (0.25, 30)),
        ("not come within `grace` (1 s;", settings.CANCEL_GRACE_S == 1),
        ("8 ms where the process serves this call alone", settings.CALL_CANCEL_GRACE_S == 0.008),
        ("4 ms where it serves this call alone", settings.CALL_TERMINATE_GRACE_S == 0.004),
        ("up to 5 s to finish", settings.LINGER_S == 5),
        ("0.5 s later", settings.TERMINATE_GRACE_S == 0.5),
        ("no calls for 5 minutes", settings.IDLE_S == 300),
        ("its last must follow within 10 s", settings.FRAME_STALL_S == 10),
        ("waiting for a free worker for 30 s", deadlines.MIN_WAIT_S == 30),
        ("`page_size` 0 means 100, 1,000 at most", (paging.DEFAULT_PAGE, paging.MAX_PAGE) == (100, 1000)),
        ("ends early at 3 MiB", paging.MAX_PAGE_BYTES == 3 * MIB),
        ("up to 20 of `{pointer, rule, message}`", documents.MAX_FAULTS == 20),
        ("a page looks at 50,000 events and no more", Bounds(1, 1).looked_at == 50_000),
        ("that would exceed 64 KiB", result_messages.MAX_DETAILS_BYTES == 64 * KIB),
        ("`[server] drain_s` (20 s)", ServerTable().drain_s == 20),
    ],
)
def test_a_time_or_a_count_is_what_the_page_says(text: str, *, kept: bool) -> None:
    assert text.replace("`Ready` | ", "") in " ".join(PAGE.split())
    assert kept


def _bytes(after: str) -> bytes:
    """The bytes of the first listing after a text: what stands at the line's start in pairs of hex digits."""
    listing_text = PAGE[PAGE.index(after) :].split("```")[1]
    pairs = [re.match(r"[→←]?\s*((?:[0-9a-f]{2}\b ?)*)", line) for line in listing_text.splitlines()]
    return bytes.fromhex("".join(match[1] for match in pairs if match))


def test_the_frames_of_the_page_say_what_it_says() -> None:
    hello, ready = (
        list(FrameDecoder(1 << 20).decode_frames(_bytes(text))) for text in ("`HostFrame`s, the", "The answer, 5")
    )
    assert len(hello) == len(ready) == 1
    greeting = plugin_pb2.HostFrame.FromString(hello[0]).hello
    assert (list(greeting.protocol_versions), greeting.plugin, greeting.max_frame_bytes) == ([1], "slug", 4 * MIB)
    assert plugin_pb2.PluginFrame.FromString(ready[0]).ready.protocol_version == 1
    call, answer = FrameDecoder(1 << 20).decode_frames(_bytes("A whole call, "))
    invoke, result = plugin_pb2.HostFrame.FromString(call).invoke, plugin_pb2.PluginFrame.FromString(answer).result
    assert json.loads(invoke.arguments_json) == {"text": "Hi!"}
    assert (invoke.call_id, invoke.attempt, invoke.timeout.seconds) == ("c1", 1, 30)
    assert json.loads(result.details_json) == {"slug": "hi"}
    assert invoke.invocation_id == result.invocation_id == 1


@needs_node
async def test_the_plugin_of_the_page_runs(tmp_path: Path) -> None:
    """Manifest, program and protos as the page has them; nothing else of ours."""
    folder = tmp_path / "shout"
    shutil.copytree(NODE_MODULES, folder / "node_modules", symlinks=True)
    shutil.copytree(ROOT / "protos" / "fumehood", folder / "fumehood", ignore=shutil.ignore_patterns("*.py*", "__*"))
    (folder / "plugin.toml").write_text(PAGE.split("```toml\n")[1].split("```")[0])
    (folder / "index.js").write_text(PAGE.split("```js\n")[1].split("```")[0])
    with running_sidecar([folder]) as sidecar:
        async with sidecar.channel() as channel:
            stub: Any = rpc.ToolServiceStub(channel)
            request = pb.CallToolRequest(tool="shout", arguments_json='{"text": "ahoy"}')
            result = (await stub.CallTool(request, timeout=TIMEOUT_S)).result
    assert not result.is_error, (result.error, sidecar.folder)
    assert json.loads(result.details_json) == {"text": "AHOY"}
