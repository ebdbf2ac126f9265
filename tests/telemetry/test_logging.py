from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
import structlog
from fumehood_server.telemetry import call_lines, configure_logging, get_logger


@contextmanager
def logging_to(path: Path, *, terminal: bool = False, level: str = "info") -> Iterator[Callable[[], None]]:
    library = logging.getLogger()
    handlers, library_level = library.handlers[:], library.level
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        flush = configure_logging(level, descriptor=descriptor, terminal=terminal)
        yield flush
        flush()
    finally:
        structlog.reset_defaults()
        library.handlers[:] = handlers
        library.setLevel(library_level)
        os.close(descriptor)


def test_a_line_is_one_json_object_with_event_level_and_time(tmp_path: Path) -> None:
    with logging_to(tmp_path / "log"):
        get_logger(plugin="p").info("loaded", tools=3, path=tmp_path)
    line = orjson.loads((tmp_path / "log").read_bytes())
    assert line.pop("timestamp").endswith("+00:00")
    assert line == {"event": "loaded", "level": "info", "plugin": "p", "tools": 3, "path": str(tmp_path)}


def test_a_line_that_json_cannot_hold_is_written_all_the_same(tmp_path: Path) -> None:
    """A plugin's file may have a name that is not UTF-8, and what Python makes of it is no JSON."""
    nested: object = ()
    for _ in range(300):
        nested = [nested]
    with logging_to(tmp_path / "log"):
        get_logger().warning("refused", reasons=[os.fsdecode(b"plugin/\xff\n")], plugin="p")
        get_logger().warning("nested", value=nested)
    first, second = map(orjson.loads, (tmp_path / "log").read_bytes().splitlines())
    assert (first["event"], first["plugin"]) == ("refused", "p")
    assert "udcff" in first["reasons"]
    assert second["event"] == "nested"


def test_a_line_below_the_level_is_not_written(tmp_path: Path) -> None:
    with logging_to(tmp_path / "log", level="warning"):
        get_logger().info("quiet")
        get_logger().warning("loud")
    assert [orjson.loads(line)["event"] for line in (tmp_path / "log").read_bytes().splitlines()] == ["loud"]


def test_an_exception_is_part_of_its_line(tmp_path: Path) -> None:
    with logging_to(tmp_path / "log"):
        get_logger().error("broken", exc_info=ValueError("the cause"))
    (line,) = (tmp_path / "log").read_bytes().splitlines()
    assert "ValueError: the cause" in orjson.loads(line)["exception"]


def test_what_libraries_say_is_a_line_too(tmp_path: Path) -> None:
    with logging_to(tmp_path / "log"):
        logging.getLogger("grpc").error("it %s", "broke")
    line = orjson.loads((tmp_path / "log").read_bytes())
    assert (line["event"], line["logger"], line["message"]) == ("library_log", "grpc", "it broke")


def test_a_terminal_gets_words_without_control_characters(tmp_path: Path) -> None:
    with logging_to(tmp_path / "log", terminal=True):
        get_logger().info("said", message="red \x1b[31m", empty="", plugin="p")
    text = (tmp_path / "log").read_text()
    assert text.endswith(' info    said message="red \\x1b[31m" plugin=p\n')


CONTROLS = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A))))


@pytest.mark.parametrize("terminal", [True, False])
def test_no_field_forges_a_line_or_steers_a_terminal(tmp_path: Path, terminal: bool) -> None:
    forged = '\n00:00:00 error   stopped\n{"event": "stopped", "level": "error"}'
    with logging_to(tmp_path / "log", terminal=terminal):
        get_logger().info("said" + forged, message=CONTROLS + forged, nested=[CONTROLS, forged])
        call_lines().info("execute_end", {"call_id": CONTROLS + forged})
    text = (tmp_path / "log").read_bytes().decode()
    lines = text.split("\n")
    assert (len(lines), lines[-1]) == (3, "")
    assert not set(CONTROLS) - {"\n"} & set(text)
    if not terminal:
        assert orjson.loads(lines[0])["message"] == CONTROLS + forged


def test_on_a_terminal_no_value_forges_a_field(tmp_path: Path) -> None:
    with logging_to(tmp_path / "log", terminal=True):
        get_logger().info("said", message='x" code=OK y="\\', plugin="p=q")
    assert (tmp_path / "log").read_text().endswith(' said message="x\\" code=OK y=\\"\\\\" plugin="p=q"\n')


def test_on_a_terminal_the_lines_of_an_exception_are_indented(tmp_path: Path) -> None:
    with logging_to(tmp_path / "log", terminal=True):
        get_logger().error("broken", exc_info=ValueError("the cause\n00:00:00 info    forged\x1b[2J"), plugin="p")
    first, *others = (tmp_path / "log").read_text().splitlines()
    assert first.endswith(" error   broken plugin=p")
    assert "    00:00:00 info    forged␛[2J" in others
    assert all(each.startswith("    ") for each in others)


@pytest.mark.parametrize("urgent", [True, False])
async def test_lines_wait_for_others_unless_something_is_wrong(tmp_path: Path, urgent: bool) -> None:
    with logging_to(tmp_path / "log") as flush:
        get_logger().info("first")
        await asyncio.sleep(0)
        assert (tmp_path / "log").read_bytes() == b""
        if urgent:
            get_logger().error("second")
            while (tmp_path / "log").read_bytes().count(b"\n") < 2:
                threading.Event().wait(0.001)  # the loop, whose timer would write them too, stands still meanwhile
        else:
            flush()
        events = [orjson.loads(line)["event"] for line in (tmp_path / "log").read_bytes().splitlines()]
    assert events == (["first", "second"] if urgent else ["first"])


def test_a_reader_that_has_gone_away_loses_the_log_and_nothing_else() -> None:
    read, write = os.pipe()
    os.close(read)
    library = logging.getLogger()
    handlers, level = library.handlers[:], library.level
    try:
        flush = configure_logging("info", descriptor=write, terminal=False)
        get_logger().info("to nobody")
        flush()
    finally:
        structlog.reset_defaults()
        library.handlers[:] = handlers
        library.setLevel(level)
        os.close(write)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_plugins_reasons_are_lines_on_a_terminal_and_a_list_for_programs(tmp_path: Path, terminal: bool) -> None:
    diff = "changed: Its files differ:\n--- pinned\n+++ now\n-old\n+new\x1b[2J"
    with logging_to(tmp_path / "log", terminal=terminal):
        get_logger().info("loop_figures", loop_longest_ms=3.0)
        get_logger().warning("plugin_refused", plugin="dice", reasons=[diff])
        get_logger().warning("plugin_reload_refused", plugin="dice", problem=diff)
    lines = (tmp_path / "log").read_text().splitlines()
    if terminal:
        assert [each.partition(" ")[2] for each in lines[:1]] == ["warning plugin_refused plugin=dice"]
        assert lines[1:5] == ["    changed: Its files differ:", "    --- pinned", "    +++ now", "    -old"]
        assert lines[5:7] == ["    +new␛[2J", "    `fumehood plugin list` says what would mend it."]
        assert lines[7].endswith("plugin_reload_refused plugin=dice")
        assert lines[8:] == [*lines[1:6]]
    else:
        assert [orjson.loads(each)["event"] for each in lines] == [
            *("loop_figures", "plugin_refused", "plugin_reload_refused")
        ]
        assert orjson.loads(lines[1])["reasons"] == [diff]
