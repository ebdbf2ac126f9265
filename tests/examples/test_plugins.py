"""The example plugins through the real sidecar, as a caller meets them."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_sandbox.outside.landlock import supported_abi

from tests.rpc.support import ToolClient
from tests.sidecar import Plugin, Sidecar, running_sidecar

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"
TIMEOUT_S = 60
ABI_WITH_SCOPES = 6

needs_node = pytest.mark.skipif(
    shutil.which("node") is None and "CI" not in os.environ, reason="Node is not here: run `make setup`"
)


@pytest.fixture(scope="module")
def granted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to read with ways out of it, one to write, and a secret beside them."""
    top = tmp_path_factory.mktemp("granted")
    for name in ("readable", "writable"):
        (top / name).mkdir()
    (top / "secret.txt").write_text("the secret")
    (top / "readable" / "letter.txt").write_text("Dear Ada,\nkeep the SASH low.\n")
    (top / "readable" / "inside.txt").symlink_to("letter.txt")
    (top / "readable" / "outside.txt").symlink_to(top / "secret.txt")
    (top / "readable" / "up").symlink_to("..")
    (top / "writable" / "out").symlink_to(top)
    return top


@pytest.fixture(scope="module")
def sidecar(granted: Path) -> Iterator[Sidecar]:
    read, write = json.dumps(str(granted / "readable")), json.dumps(str(granted / "writable"))
    files = f'max_side_effects = "write"\nread = [{read}]\nwrite = [{write}]\n'
    files += '[plugin.tools.write_file]\npermission = "allow"\n'
    plugins: list[Plugin] = [
        *(PLUGINS / name for name in ("dice", "text", "run_python", "regex-node")),
        (PLUGINS / "files", files),
        (PLUGINS / "grep", f"read = [{read}]"),
    ]
    with running_sidecar(plugins) as running:
        yield running


@pytest.fixture
async def tools(sidecar: Sidecar) -> AsyncIterator[ToolClient]:
    async with sidecar.channel() as channel:
        yield ToolClient(sidecar, channel)


async def test_dice_fall_within_their_sides(tools: ToolClient) -> None:
    roll = await tools.details("roll_dice", count=10, sides=4)
    assert len(roll["rolls"]) == 10
    assert set(roll["rolls"]) <= {1, 2, 3, 4}
    assert roll["total"] == sum(roll["rolls"])


@pytest.mark.parametrize("arguments", [{"count": 0, "sides": 6}, {"count": 1, "sides": 7}, {"count": 1}])
async def test_dice_that_do_not_exist_are_refused(tools: ToolClient, arguments: dict[str, int]) -> None:
    assert await tools.reason("roll_dice", **arguments) == "invalid_arguments"


async def test_words_are_counted(tools: ToolClient) -> None:
    counted = await tools.details("word_count", text="a b a\nb a", most_common=1)
    assert counted == {"characters": 9, "words": 5, "lines": 2, "most_common": {"a": 3}}


async def test_a_difference_names_the_lines_that_changed(tools: ToolClient) -> None:
    found = await tools.details("diff_text", before="one\ntwo\n", after="one\nthree\n")
    assert (found["added_lines"], found["removed_lines"]) == (1, 1)
    assert "-two" in found["unified_diff"]
    assert "+three" in found["unified_diff"]


async def test_a_slow_job_tells_its_progress(tools: ToolClient) -> None:
    call = pb.CallToolRequest(tool="slow_count", arguments_json='{"upto": 3, "delay_ms": 1}')
    events = [event async for event in tools.tools.StreamTool(pb.StreamToolRequest(call=call), timeout=TIMEOUT_S)]
    assert [event.WhichOneof("event") for event in events] == ["started", "update", "update", "update", "finished"]
    assert [event.update.progress for event in events[1:4]] == [1, 2, 3]
    assert json.loads(events[-1].finished.details_json) == {"counted": 3}


async def test_a_slow_job_ends_when_it_is_cancelled(tools: ToolClient) -> None:
    call = pb.CallToolRequest(tool="slow_count", arguments_json='{"upto": 10000, "delay_ms": 20}', call_id="slow")
    stream = tools.tools.StreamTool(pb.StreamToolRequest(call=call), timeout=TIMEOUT_S)
    async for event in stream:
        if event.HasField("update"):
            await tools.tools.CancelCall(pb.CancelCallRequest(call_id="slow"), timeout=TIMEOUT_S)
            break
    last = [event async for event in stream][-1].finished
    assert last.error.code == "CANCELLED_SIGNAL"
    # On a busy machine it may not have answered before its process is ended.
    assert json.loads(last.error.details_json)["ended_by"] in ("cancel_frame", "sigterm", "sigkill")


@pytest.mark.parametrize("path", ["letter.txt", "./letter.txt", "inside.txt", "{top}/readable/letter.txt"])
async def test_granted_files_are_read(tools: ToolClient, granted: Path, path: str) -> None:
    assert "SASH" in (await tools.details("read_file", path=path.format(top=granted)))["text"]


@pytest.mark.parametrize(
    "path", ["../secret.txt", "{top}/secret.txt", "/etc/passwd", "outside.txt", "up/secret.txt", "readable/../../x"]
)
async def test_files_outside_the_grant_are_refused(tools: ToolClient, granted: Path, path: str) -> None:
    assert await tools.reason("read_file", path=path.format(top=granted)) == "outside_grants"


async def test_a_listing_shows_links_as_links(tools: ToolClient, granted: Path) -> None:
    listing = await tools.details("list_files")
    kinds = {Path(entry["path"]).name: entry["kind"] for entry in listing["entries"]}
    assert kinds == {"letter.txt": "file", "inside.txt": "link", "outside.txt": "link", "up": "link"}
    assert await tools.reason("list_files", path=str(granted)) == "outside_grants"


async def test_a_search_finds_lines_whatever_their_case_and_does_not_follow_links(tools: ToolClient) -> None:
    found = await tools.details("search_files", query="sash")
    assert [(Path(match["path"]).name, match["line"]) for match in found["matches"]] == [("letter.txt", 2)]
    assert not (await tools.details("search_files", query="the secret"))["matches"]


async def test_a_file_is_written_where_writing_is_granted(tools: ToolClient, granted: Path) -> None:
    written = await tools.details("write_file", path="new/note.txt", text="Grüße")
    assert written["size_bytes"] == len("Grüße".encode())
    assert (granted / "writable" / "new" / "note.txt").read_text() == "Grüße"


@pytest.mark.parametrize(
    "path", ["../escaped.txt", "{top}/escaped.txt", "out/escaped.txt", "{top}/readable/escaped.txt"]
)
async def test_nothing_is_written_outside_the_grant(tools: ToolClient, granted: Path, path: str) -> None:
    assert await tools.reason("write_file", path=path.format(top=granted), text="x") == "outside_grants"
    assert not list(granted.rglob("escaped.txt"))


async def test_grep_searches_what_is_granted_and_can_see_nothing_else(tools: ToolClient, granted: Path) -> None:
    found = await tools.details("grep_files", pattern="sash", path=str(granted / "readable"), ignore_case=True)
    assert "keep the SASH low." in found["stdout"]
    nothing = await tools.details("grep_files", pattern="secret", path=str(granted))
    assert (nothing["exit_code"], nothing["stdout"]) == (1, "")


async def test_grep_takes_a_pattern_that_looks_like_an_option_as_a_pattern(tools: ToolClient, granted: Path) -> None:
    found = await tools.details("grep_files", pattern="--version", path=str(granted / "readable"))
    assert found["exit_code"] == 1


async def test_code_is_run_and_what_it_prints_comes_back(tools: ToolClient) -> None:
    run = await tools.details("run_python", code="import sys; print(6 * 7); print('no', file=sys.stderr); sys.exit(3)")
    assert (run["exit_status"], run["stdout"], run["stderr"]) == (3, "42\n", "no\n")


async def run_until_ended(tools: ToolClient, code: str, *, said: str) -> dict[str, Any]:
    """What became of code that doesn't end. It is given more time where it has not said this within a second.

    As on a busy machine, where its interpreter's start alone may take that.
    """
    for timeout_s in (1, 5, 30):
        run: dict[str, Any] = await tools.details("run_python", code=code, timeout_s=timeout_s)
        if said in run["stdout"]:
            break
    return run


PROCESSES = "import os; print(sum(name.isdigit() for name in os.listdir('/proc')))"


async def test_code_that_does_not_end_is_ended_with_what_it_started(tools: ToolClient) -> None:
    alone = (await tools.details("run_python", code=PROCESSES))["stdout"]
    forks = "import subprocess, time; subprocess.Popen(['sleep', '1000']); print('up', flush=True); time.sleep(1000)"
    run = await run_until_ended(tools, forks, said="up\n")
    assert (run["timed_out"], run["exit_status"], run["stdout"]) == (True, 137, "up\n")
    assert (await tools.details("run_python", code=PROCESSES))["stdout"] == alone


ORPHAN = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("up", flush=True)
        os.close(1), os.close(2)
        time.sleep(1000)
    os._exit(0)
"""


async def test_an_orphan_in_a_session_of_its_own_does_not_outlive_the_call(tools: ToolClient) -> None:
    alone = (await tools.details("run_python", code=PROCESSES))["stdout"]
    run = await tools.details("run_python", code=ORPHAN)
    assert (run["exit_status"], run["timed_out"]) == (0, False)
    assert (await tools.details("run_python", code=PROCESSES))["stdout"] == alone


async def test_a_fork_bomb_meets_its_limit_and_is_ended(tools: ToolClient) -> None:
    bomb = "import os\ntry:\n while True: os.fork()\nexcept OSError as error: print(error.errno, flush=True)\n"
    run = await run_until_ended(tools, bomb + "import time; time.sleep(1000)", said=f"{errno.EAGAIN}\n")
    assert run["timed_out"]
    assert f"{errno.EAGAIN}\n" in run["stdout"]
    assert (await tools.details("run_python", code="print('alive')"))["stdout"] == "alive\n"


OWN = """
import os, signal
if (child := os.fork()) == 0:
    signal.pause()
os.kill(child, 9)
print("own", flush=True)
"""


@pytest.mark.skipif(supported_abi() < ABI_WITH_SCOPES, reason="this kernel's Landlock knows no scopes: 6.12 does")
@pytest.mark.parametrize(
    "code", ["os.kill(os.getppid(), 9)", "os.kill(os.getppid(), 15)", "open(f'/proc/{os.getppid()}/mem')"]
)
async def test_code_reaches_no_process_but_its_own(tools: ToolClient, code: str) -> None:
    run = await tools.details("run_python", code=OWN + code)
    assert run["stdout"] == "own\n"
    assert any(name in run["stderr"] for name in ("PermissionError", "FileNotFoundError"))


async def test_a_program_may_be_longer_than_an_argument(tools: ToolClient) -> None:
    run = await tools.details("run_python", code=f"print(len('{'é' * 90_000}'))")
    assert run["stdout"] == "90000\n"


async def test_a_traceback_shows_the_programs_own_lines(tools: ToolClient) -> None:
    run = await tools.details("run_python", code="def half(n):\n    return n / 0\nhalf(1)")
    assert run["exit_status"] == 1
    assert "return n / 0" in run["stderr"]
    assert "runner.py" not in run["stderr"]


async def test_code_that_prints_without_end_is_cut_and_not_kept(tools: ToolClient) -> None:
    run = await run_until_ended(tools, "while True: print('x' * 1000)", said=("x" * 1000 + "\n") * 65)
    assert (run["truncated"], len(run["stdout"])) == (True, 64 * 1024)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import socket; socket.socket()", id="socket"),
        pytest.param("open('{top}/secret.txt')", id="file of the host"),
        pytest.param("open('/etc/shadow')", id="shadow"),
        pytest.param("import os; os.kill({pid}, 0)", id="process of the host"),
        pytest.param("open('/proc/1/environ').read()", id="environment of the sandbox's first process"),
    ],
)
async def test_code_can_do_no_harm(tools: ToolClient, granted: Path, code: str) -> None:
    body = code.format(top=granted, pid=os.getpid())
    run = await tools.details("run_python", code=f"print('before'); {body}; print('out')")
    assert run["stdout"] == "before\n", run
    assert run["exit_status"] != 0


async def test_code_that_takes_all_memory_is_told_the_limit(tools: ToolClient) -> None:
    result = await tools.call("run_python", code="b = bytearray(2 << 30)")
    run = json.loads(result.details_json) if result.details_json else {}
    # The kernel ends what holds most: the code alone, whose end is then the tool's result, or the whole call. Without a
    # cgroup the interpreter meets its own address space's end.
    assert result.error.code == "TOOL_RESOURCE_EXHAUSTED" or run["exit_status"] != 0
    assert (await tools.details("run_python", code="print(len(bytearray(64 << 20)))"))["stdout"] == f"{64 << 20}\n"


@needs_node
async def test_a_program_in_another_language_prepares_arguments_as_models_send_them(tools: ToolClient) -> None:
    found = await tools.details("match_regex", pattern="/A+b/gi", text="xaab")
    assert [each["match"] for each in found["matches"]] == ["aab"]
    assert await tools.details("replace_regex", pattern="/a/g", text="aba", replacement="") == {
        "text": "b",
        "replacements": 2,
    }
    # What is as the schema wants it stays as it is.
    assert (await tools.details("match_regex", pattern="/a/", flags="", texts=["a", "/a/"]))["matched_texts"] == 1
    assert (await tools.details("match_regex", pattern="a", texts=["aa"]))["matched_texts"] == 1
    assert await tools.reason("match_regex", pattern="a", texts=5) == "invalid_arguments"
    refused = await tools.call("match_regex", pattern="/a/q", text="a")
    assert json.loads(refused.error.details_json)["reason"] == "prepare_arguments_failed"
    assert json.loads(refused.error.caused_by.details_json)["reason"] == "invalid_flags"
    broken = pb.CallToolRequest(tool="match_regex", arguments_json='{"pattern": ')
    result = (await tools.tools.CallTool(broken, timeout=TIMEOUT_S)).result
    assert [each["rule"] for each in json.loads(result.error.details_json)["arguments"]] == ["json"]


@needs_node
async def test_a_plugin_without_our_sdk_answers(tools: ToolClient) -> None:
    found = await tools.details("match_regex", pattern="(?<first>a+)b", texts=["xaab", "none"])
    assert found["matched_texts"] == 1
    assert found["matches"][0]["match"] == "aab"


@needs_node
async def test_a_pattern_that_backtracks_without_end_is_ended_by_the_timeout(tools: ToolClient) -> None:
    result = await tools.call("match_regex", pattern="(a+)+$", texts=["a" * 40 + "b"])
    assert result.error.code == "TOOL_TIMEOUT"
    assert (await tools.details("match_regex", pattern="a", texts=["a"]))["matched_texts"] == 1
