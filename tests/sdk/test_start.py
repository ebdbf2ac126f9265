"""From the start of a plugin's process to `Ready`, and a sidecar that does not speak the wire."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fumehood.v1.plugin_pb2 import Hello, HostFrame
from fumehood.v1.tool_pb2 import EXECUTION_MODE_PARALLEL, SIDE_EFFECTS_NONE

from .client import delimited, plugin, started

GOOD = 'from fumehood_sdk import Plugin\nplugin = Plugin("small", version="1")\n'
HELLO = HostFrame(hello=Hello(protocol_versions=[1])).SerializeToString()


def small(folder: Path, source: str) -> Path:
    (folder / "small.py").write_text(source)
    return folder


def test_ready_carries_the_version_the_sdk_and_each_definition(tmp_path: Path) -> None:
    with plugin(tmp_path) as client:
        ready = client.hello(protocol_versions=[7, 1])
    assert ready.protocol_version == 1
    assert ready.sdk.startswith("fumehood-sdk/")
    assert ready.max_concurrent_calls == 0
    echo = next(tool for tool in ready.tools if tool.name == "echo")
    assert (echo.description, echo.side_effects, echo.idempotent) == ("Say it again.", SIDE_EFFECTS_NONE, True)
    assert echo.execution_mode == EXECUTION_MODE_PARALLEL


def test_a_plugin_that_asks_for_fewer_calls_says_so(tmp_path: Path) -> None:
    source = small(tmp_path, GOOD.replace('version="1"', 'version="1", concurrency=3'))
    with plugin(tmp_path, "small:plugin", source=source) as client:
        assert client.hello().max_concurrent_calls == 3


def test_a_version_that_is_not_spoken_is_named_and_ends_the_process(tmp_path: Path) -> None:
    with plugin(tmp_path) as client:
        assert client.hello(protocol_versions=[2, 3]).protocol_version == 1
        assert client.exit_status() == 1
        assert "[2, 3]" in client.stderr()


@pytest.mark.parametrize(
    ("source", "entrypoint", "said"),
    [
        ("import nosuchmodule", "small:plugin", "No module named 'nosuchmodule'"),
        ("raise SystemExit(0)", "small:plugin", "SystemExit"),
        ("1 +", "small:plugin", "SyntaxError"),
        (GOOD, "small:other", "has no 'other'"),
        (GOOD, "small", "must be"),
        (GOOD + "plugin = 3", "small:plugin", "is of type int"),
        (GOOD, "nosuch:plugin", "No module named 'nosuch'"),
        (GOOD + "@plugin.tool()\ndef f() -> None:\n    'F.'\n", "small:plugin", "add side_effects="),
    ],
)
def test_a_plugin_that_cannot_be_loaded_says_why_and_ends_with_status_1(
    tmp_path: Path, source: str, entrypoint: str, said: str
) -> None:
    with plugin(tmp_path, entrypoint, source=small(tmp_path, source)) as client:
        client.send_bytes(delimited(HELLO))
        assert client.rest() == []
        assert client.exit_status() == 1
        assert said in client.stderr()


def test_a_plugin_of_another_name_than_its_manifests_is_refused(tmp_path: Path) -> None:
    source = small(tmp_path, GOOD)
    with plugin(tmp_path, "small:plugin", source=source) as client:
        client.hello(plugin="small")
    with plugin(tmp_path, "small:plugin", source=source) as client:
        client.send_bytes(delimited(HostFrame(hello=Hello(protocol_versions=[1], plugin="other")).SerializeToString()))
        assert client.rest() == []
        assert client.exit_status() == 1
        assert "'other'" in client.stderr()


def test_printing_during_import_does_not_break_the_wire(tmp_path: Path) -> None:
    source = small(tmp_path, "import os\nprint('hello')\nos.write(1, b'there')\n" + GOOD)
    with plugin(tmp_path, "small:plugin", source=source) as client:
        assert client.hello().protocol_version == 1
        assert "hello" in client.stderr()
        assert "there" in client.stderr()


def test_a_stream_that_ends_before_hello_ends_the_process_with_status_0(tmp_path: Path) -> None:
    with plugin(tmp_path) as client:
        client.end_input()
        assert client.rest() == []
        assert client.exit_status() == 0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff\xff\xff\xff\xff\xff", "does not end"),
        (b"\xff\xff\xff\xff\x0f", "exceeds the cap"),
        (b"\x05\x0a\x50\x01", "ended within a frame"),
        (b"\x03\x0a\x50\x01", "longer than its message"),
        (b"\x02\x0f\x07", "wire type"),
        (b"\x02\x07\x07", "has no number"),
        (delimited(HostFrame.FromString(b"\x12\x00").SerializeToString()), "the first frame is Invoke"),
    ],
)
@pytest.mark.parametrize("after_hello", [False, True])
def test_a_sidecar_that_does_not_speak_the_wire_ends_the_process_with_status_1(
    tmp_path: Path, data: bytes, said: str, after_hello: bool
) -> None:
    with plugin(tmp_path) as client:
        if after_hello:
            client.hello()
        client.send_bytes(data)
        client.end_input()
        frames = client.rest()
        if after_hello and "first frame" in said:
            assert frames[0].result.error.reason == "unknown_tool"
            assert client.exit_status() == 0
        else:
            assert frames == []
            assert client.exit_status() == 1
            assert said in client.stderr()


def test_frames_and_fields_that_are_not_known_are_ignored(tmp_path: Path) -> None:
    with plugin(tmp_path) as client:
        client.send_bytes(delimited(b"\xfa\x01\x03abc"))
        client.send_bytes(delimited(b""))
        assert client.hello().protocol_version == 1
        client.send_bytes(delimited(b"\xfa\x01\x03abc"))
        assert not client.call("echo", '{"text": "x"}').HasField("error")


def test_a_plugin_that_is_a_program_of_its_own_serves_with_run(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        GOOD
        + "@plugin.tool(side_effects='none')\ndef twice(n: int) -> int:\n    'Double.'\n    return 2 * n\n"
        + "plugin.run()\n"
    )
    with started([str(program)], tmp_path) as client:
        assert [tool.name for tool in client.hello().tools] == ["twice"]
        assert client.call("twice", '{"n": 21}').details_json == "42"
        client.end_input()
        assert client.exit_status() == 0


IDLE_MODULES = (
    "asyncio",
    "ctypes",
    "google.protobuf",
    "grpc",
    "logging",
    "pathlib",
    "pydantic",
    "subprocess",
    "tomllib",
    "traceback",
)


def test_serving_a_plugin_of_plain_types_imports_nothing_that_it_can_do_without(tmp_path: Path) -> None:
    source = small(
        tmp_path,
        "import atexit, sys\nfrom dataclasses import dataclass\nfrom typing import Annotated, Literal\n"
        "from fumehood_sdk import Context, Field, Plugin\n"
        'plugin = Plugin("small", version="1")\n'
        "@dataclass\nclass Roll:\n    dice: list[int]\n"
        "@plugin.tool(side_effects='none')\n"
        "def roll(n: Annotated[int, Field(ge=1)], s: Literal[4, 6], ctx: Context, t: str | None = None) -> Roll:\n"
        "    'Roll.'\n    return Roll([1])\n"
        f"atexit.register(lambda: print([m for m in {IDLE_MODULES!r} if m in sys.modules], file=sys.stderr))\n",
    )
    with plugin(tmp_path, "small:plugin", source=source) as client:
        client.hello()
        assert client.call("roll", '{"n": 1, "s": 6}').details_json == '{"dice":[1]}'
        client.end_input()
        assert client.exit_status() == 0
        assert client.stderr().strip() == "[]"


def test_an_asynchronous_tool_is_what_asyncio_is_imported_for(tmp_path: Path) -> None:
    with plugin(tmp_path) as client:
        client.hello()
        assert client.call("echo_async", '{"text": "x"}').details_json == '"x"'


@pytest.mark.parametrize("module", ["fumehood_sdk", "fumehood_sdk.adapters.template", "fumehood_sdk.adapters.cli"])
def test_what_is_imported_without_a_python_plugin_leaves_pydantic_alone(module: str) -> None:
    code = (
        f"import sys, {module}; print([m for m in ('pydantic_core', 'asyncio', 'google.protobuf') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_plugins_folder_comes_first_and_its_own_packages_are_found(tmp_path: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = tmp_path / ".venv" / "lib" / version / "site-packages"
    site.mkdir(parents=True)
    (site / "borrowed.py").write_text("VALUE = 5\n")
    source = small(tmp_path, "import borrowed\nassert borrowed.VALUE == 5\n" + GOOD)
    with plugin(tmp_path, "small:plugin", source=source) as client:
        assert client.hello().protocol_version == 1
