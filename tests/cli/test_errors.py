"""What a person is told when the sidecar is absent, leaving, overloaded, or hostile."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import grpc
import pytest

from tests.cli.command import COMMAND, TIMEOUT_S, environment, fumehood, on_terminal
from tests.cli.fake import FakeSidecar, refuse, result, tool


def test_nobody_listening_is_status_3_and_says_where_and_how_to_start(tmp_path: Path) -> None:
    for command in (("tools",), ("call", "x"), ("plugin", "list"), ("plugin", "logs", "x")):
        done = fumehood(*command, folder=tmp_path)
        assert (done.status, done.stdout) == (3, "")
        assert str(tmp_path / ".fumehood/fumehood.sock") in done.stderr
        assert "fumehood serve" in done.stderr
        assert len(done.stderr.splitlines()) == 2


def test_a_closed_port_is_status_3_with_an_error_object(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else gets the port
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = fumehood("tools", "--json", address=address, folder=tmp_path)
    assert (done.status, done.stdout) == (3, "")
    assert (done.error["code"], done.error["details"]["address"]) == ("UNREACHABLE", address)


def test_the_address_is_taken_from_fumehood_toml(tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text('[server]\nlisten = ["127.0.0.1:1", "unix:here.sock"]\n')
    assert f"unix:{tmp_path}/here.sock" in fumehood("tools", folder=tmp_path).stderr


@pytest.mark.parametrize("address", ["nonsense", "host:port", "unix:" + "x" * 200])
def test_what_is_no_address_is_status_2(address: str, tmp_path: Path) -> None:
    done = fumehood("tools", "--address", address, folder=tmp_path)
    assert (done.status, len(done.stderr.splitlines())) == (2, 2)


@pytest.mark.parametrize(
    ("code", "reason", "status"),
    [
        (grpc.StatusCode.UNAVAILABLE, "DRAINING", 3),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS", 2),
        (grpc.StatusCode.ALREADY_EXISTS, "CALL_ID_IN_USE", 2),
        (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID", 2),
        (grpc.StatusCode.FAILED_PRECONDITION, "OF_ANOTHER_VERSION", 2),
    ],
)
def test_a_refusal_keeps_its_reason_and_metadata(
    fake: FakeSidecar, code: grpc.StatusCode, reason: str, status: int
) -> None:
    fake.answer = lambda context: refuse(context, code, reason, "not now")
    done = fumehood("call", "odd", "--json", address=fake.target)
    assert (done.status, done.error["code"], done.error["message"]) == (status, reason, "not now")
    assert (done.error["details"]["grpc_status"], done.error["details"]["hint"]) == (code.name, "kept")
    assert done.error["todo"]


def test_a_method_that_an_older_sidecar_lacks_says_so(fake: FakeSidecar) -> None:
    done = fumehood("plugin", "list", address=fake.target)
    assert (done.status, "of another version" in done.stderr) == (2, True)


def test_every_page_of_tools_is_read(fake: FakeSidecar) -> None:
    fake.tools = [tool(f"t{number:03}") for number in range(25)]
    fake.page_size = 10
    assert len(fumehood("tools", "--json", address=fake.target).json["tools"]) == 25


def test_a_long_description_stays_on_its_line_and_control_characters_become_pictures(fake: FakeSidecar) -> None:
    fake.tools = [tool("evil", "Wipe\x1b[2J\x07 the\u202escreen \r" + "and go on " * 100)]
    lines = fumehood("tools", address=fake.target).stdout.splitlines()
    assert len(lines) == 2
    assert "␛[2J␇" in lines[1]
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(lines[1])


def test_markup_of_foreign_text_is_not_interpreted(fake: FakeSidecar) -> None:
    fake.tools = [tool("odd", "[red]danger[/red] :boom: is text.")]
    assert "[red]danger[/red] :boom: is text." in fumehood("tools", address=fake.target).stdout


def test_through_a_pipe_the_bytes_of_a_result_stay_as_they_are(fake: FakeSidecar) -> None:
    fake.answer = lambda _context: result("\x1b[31mred")
    assert fumehood("call", "odd", address=fake.target).stdout == "\x1b[31mred\n"


def test_on_a_terminal_a_result_can_give_no_orders_and_a_footer_says_what_it_was(fake: FakeSidecar) -> None:
    fake.answer = lambda _context: result("\x1b[31mred")
    status, text = on_terminal("call", "odd", address=fake.target)
    assert status == 0
    assert "␛[31mred" in text
    assert "\x1b[31mred" not in text
    assert "odd ok; call c-1" in text


def test_an_option_of_a_wrapped_server_is_told_to_stand_behind_two_dashes() -> None:
    done = fumehood("mcp", "wrap", "uvx", "mcp-server-time", "--foo")
    assert done.status == 2
    what, todo = done.stderr.splitlines()
    assert ("--foo" in what, "put -- before its command" in todo) == (True, True)
    behind = fumehood("mcp", "wrap", "--foo", "--", "uvx", "mcp-server-time")
    assert behind.stderr.splitlines()[1] == "See fumehood mcp wrap --help."


def test_a_reader_that_leaves_early_is_no_error(fake: FakeSidecar) -> None:
    fake.tools = [tool(f"t{number:04}") for number in range(1000)]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as stdout:
        done = subprocess.run(
            [*COMMAND, "tools", "--json"],
            env=environment(fake.target),
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
