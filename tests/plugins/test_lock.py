from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from fumehood_sandbox import Level
from fumehood_server.errors import ConfigError
from fumehood_server.model.tool import DeclaredLimits, ToolDefinition
from fumehood_server.plugins.changes import diff_changes, summarise_changes, tool_changes
from fumehood_server.plugins.definitions import RawDefinition, check_definition, definition_digest
from fumehood_server.plugins.lock import Lock, Pinned, lock_text, pin_plugins, read_lock

RAW = RawDefinition(
    name="echo",
    description="Says it again.",
    input_schema_json='{"type": "object"}',
    side_effects="none",
)


def definition(name: str = "echo", **fields: object) -> ToolDefinition:
    made, problems = check_definition(replace(RAW, name=name, **fields))
    assert made is not None, problems
    return made


def pinned(*tools: ToolDefinition, version: str = "1.0.0", digit: str = "a") -> Pinned:
    return Pinned(version=version, digest="sha256:" + digit * 64, tools=tools or (definition(),))


GOLDEN = """\
{
  "plugins": {
    "text": {
      "digest": "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
      "tools": {
        "echo": {
          "definition": {
            "description": "Says it again.",
            "execution_mode": "parallel",
            "idempotent": false,
            "input_schema": {
              "type": "object"
            },
            "isolation": "process",
            "limits": {},
            "name": "echo",
            "output_schema": null,
            "requires": [],
            "side_effects": "none",
            "timeout_s": 30.0,
            "title": ""
          },
          "digest": "sha256:d8de58089ce36fb1217394d9f817878ef5055b6f36a1e06228a462678628b116"
        }
      },
      "version": "1.0.0"
    }
  },
  "version": 1
}
"""


def test_the_file_is_what_it_always_was() -> None:
    assert lock_text(Lock({"text": pinned()})) == GOLDEN


def test_what_is_pinned_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "fumehood.lock"
    assert read_lock(path) == Lock()
    tool = definition(
        title="É",
        output_schema_json='{"type": "string"}',
        side_effects="write",
        requires=("write", "binary:rg"),
        timeout_s=1.5,
        limits={"cpu_s": 3},
    )
    assert tool.limits == DeclaredLimits(cpu_s=3)
    one = pin_plugins(path, {"one": pinned(tool)})
    assert read_lock(path) == one == Lock({"one": pinned(tool)})
    both = pin_plugins(path, {"two": pinned(version="2")})
    assert set(read_lock(path).plugins) == set(both.plugins) == {"one", "two"}
    assert list(tmp_path.iterdir()) == [path]


def test_a_schema_that_is_taken_no_more_keeps_no_other_plugin_away(tmp_path: Path) -> None:
    path = tmp_path / "fumehood.lock"
    schema = r'{"properties":{"name":{"pattern":"^\\p{L}{1,1000}$"}},"type":"object"}'
    costly = replace(definition(), input_schema_json=schema)
    assert check_definition(replace(RAW, input_schema_json=schema))[0] is None
    pin_plugins(path, {"costly": pinned(costly), "plain": pinned()})
    found = read_lock(path).plugins
    assert {name: each.is_usable for name, each in found.items()} == {"costly": False, "plain": True}
    assert found["costly"].tools == (costly,)
    pin_plugins(path, {"plain": pinned(version="2")})
    assert read_lock(path).plugins["costly"] == found["costly"]
    path.write_text(path.read_text().replace("1,1000", "1,2000"))
    with pytest.raises(ConfigError, match="doesn't have the digest"):
        read_lock(path)


def test_words_for_why_a_schema_is_not_taken_are_no_part_of_a_digest() -> None:
    one, other = (replace(definition(), schema_problem=words) for words in ("too long", "longer than it may be"))
    assert definition_digest(one) == definition_digest(other) != definition_digest(definition())


def test_pinning_what_is_pinned_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "fumehood.lock"
    pin_plugins(path, {"one": pinned()})
    before = path.stat().st_ino
    pin_plugins(path, {"one": pinned()})
    assert path.stat().st_ino == before
    pin_plugins(path, {"one": pinned(digit="b")})
    assert path.stat().st_ino != before


def _broken(text: str) -> list[tuple[str, str]]:
    data = json.loads(text)

    def changed(*path: str, value: object) -> str:
        copy = json.loads(text)
        inner = copy
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] = value
        return json.dumps(copy)

    tool = ("plugins", "text", "tools", "echo")
    assert data["version"] == 1
    return [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[]", "fumehood.lock: "),
        (changed("plugins", "text", "version", value="\ud800"), "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        (text.replace('"version": 1', '"version": 2, "version": 1', 1), "the key `version` twice"),
        (changed("version", value=2), "use a newer fumehood"),
        (changed("version", value=0), "is of version 0"),
        (changed("extra", value=1), "`extra`"),
        (changed("plugins", "text", "digest", value="sha256:x"), "`plugins.text.digest`"),
        (changed(*tool, "digest", value="sha256:" + "0" * 64), "doesn't have the digest"),
        (changed(*tool, "definition", "side_effects", value="read"), "doesn't have the digest"),
        (changed(*tool, "definition", "side_effects", value="raed"), "unknown word"),
        (changed(*tool, "definition", "idempotent", value="yes"), "idempotent"),
        (changed(*tool, "definition", "limits", value={"memory": 3}), "limits"),
        (changed(*tool, "definition", "name", value="other"), "doesn't have the digest"),
        (changed(*tool, "definition", "extra", value=1), "extra"),
    ]


def test_a_lock_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fumehood.lock"
    pin_plugins(path, {"text": pinned()})
    for text, problem in _broken(path.read_text()):
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            read_lock(path)
        assert problem in str(caught.value)
        assert str(caught.value).startswith(str(path))
        with pytest.raises(ConfigError):
            pin_plugins(path, {"other": pinned()})
        assert path.read_text() == text


def test_what_is_not_a_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="not a regular file"):
        read_lock(tmp_path / "fifo")


def test_writers_take_turns_and_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "fumehood.lock"
    names = [f"p{number}" for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: pin_plugins(path, {name: pinned()}), names))
    assert sorted(read_lock(path).plugins) == names


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't be written: .*plugin add"):
        pin_plugins(tmp_path / "absent/fumehood.lock", {"one": pinned()})


def test_a_killed_writer_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "fumehood.lock"
    pin_plugins(path, {"one": pinned()})
    before = path.read_bytes()
    program = (
        "import os, sys; from pathlib import Path; from fumehood_server.plugins import lock\n"
        "os.fsync = lambda _: os._exit(7)\n"
        "lock.pin_plugins(Path(sys.argv[1]), {'two': next(iter(lock.read_lock(Path(sys.argv[1])).plugins.values()))})\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], check=False, timeout=30, env=dict(os.environ))
    assert done.returncode == 7
    assert path.read_bytes() == before
    assert set(pin_plugins(path, {"two": pinned()}).plugins) == {"one", "two"}


def test_changes_name_the_level_first() -> None:
    old = [definition("gone"), definition("same"), definition("words"), definition("level")]
    new = [
        definition("same"),
        definition("words", description="Other words entirely."),
        definition("level", side_effects="write", description="Now it writes."),
        definition("fresh", side_effects="read"),
    ]
    found = tool_changes(old, new)
    assert [change.name for change in found] == ["fresh", "gone", "level", "words"]
    assert summarise_changes(found) == (
        "fresh is new at level read; gone is gone; level: level none -> write, description; words: description"
    )
    assert found[2].fields[0] == "side_effects"
    assert found[2].new is not None
    assert found[2].new.side_effects is Level.WRITE
    assert tool_changes(old, list(reversed(old))) == ()


def test_the_diff_reads_like_one_and_is_short() -> None:
    found = tool_changes([definition()], [definition(side_effects="write", description="Writes.\u202e\x1b[2J")])
    text = diff_changes(found)
    assert '-  "side_effects": "none",' in text
    assert '+  "side_effects": "write",' in text
    assert text.isascii()
    assert "\x1b" not in text
    many = tool_changes([], [definition(f"tool{number}") for number in range(20)])
    assert len(diff_changes(many).splitlines()) == 21
    assert diff_changes(many).splitlines()[-1].endswith("more lines")
    assert len(diff_changes(many, max_lines=None).splitlines()) > 200


@pytest.mark.parametrize("values", [10, 60_000])
def test_the_diff_of_much_is_whole_and_takes_little_time(values: int) -> None:
    def enum(first: int) -> str:
        return json.dumps(
            {"examples": [[(first + number * number) % 101 for number in range(values)]], "type": "object"}
        )

    found = tool_changes([definition(input_schema_json=enum(0))], [definition(input_schema_json=enum(1))])
    begun = time.process_time()
    lines = diff_changes(found, max_lines=None).splitlines()
    assert time.process_time() - begun < 5, "line by line it takes hours"
    changed = [line[0] for line in lines[3:] if line[0] in "+-"]
    assert 0.9 * values <= changed.count("+") == changed.count("-") <= values
    assert len(diff_changes(found).splitlines()) == 21
