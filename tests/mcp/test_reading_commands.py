"""`fumehood mcp resources`, `read`, `prompts` and `prompt`: what is printed where, and what the exit status says."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Done, fumehood
from tests.mcp.test_readings import shelf
from tests.sidecar import Sidecar, running_sidecar


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("shelves")
    plugins = [
        (shelf(folder / "one"), 'prefix = "one_"'),
        (shelf(folder / "shut"), 'prefix = "shut_"\nmax_side_effects = "none"'),
        (shelf(folder / "barred"), 'prefix = "barred_"\nmax_side_effects = "none"'),
        (shelf(folder / "two", environment={"STATELESS": '"1"', "STRICT": '"1"'}), 'prefix = "two_"'),
    ]
    with running_sidecar(plugins) as running:
        yield running


def mcp(sidecar: Sidecar, *arguments: str | Path) -> Done:
    return fumehood("mcp", *arguments, address=sidecar.target)


def test_resources_of_all_servers_that_can_be_asked_are_listed_with_every_page(sidecar: Sidecar) -> None:
    done = mcp(sidecar, "resources")
    assert done.status == 0
    (why,) = done.stderr.splitlines()
    assert why.startswith("barred, shut can't be asked: resources/list ")
    (why,) = mcp(sidecar, "prompts").stderr.splitlines()
    assert why.startswith("barred, shut can't be asked: prompts/list ")
    rows = [line.split()[:2] for line in done.stdout.splitlines()[1:]]
    uris = ["shelf:text", "shelf:blob", "shelf:loud"]
    assert rows == [[each, uri] for each in ("one", "two") for uri in uris] + [
        [each, "shelf:file?{path}"] for each in ("one", "two")
    ]
    shape = mcp(sidecar, "resources", "two", "--json").json
    assert [each["uri"] for each in shape["resources"]] == uris
    assert shape["resources"][0] == {
        "plugin": "two",
        "uri": "shelf:text",
        "name": "text",
        "title": "A text",
        "description": "Says hello.",
        "media_type": "text/plain",
        "annotations": {"audience": ["user"], "priority": 0.5, "last_modified": "2026-01-01T00:00:00Z"},
        "size_bytes": 5,
    }
    assert [each["uri_template"] for each in shape["templates"]] == ["shelf:file?{path}"]
    assert shape["errors"] == []


def test_text_goes_to_stdout_and_bytes_to_a_file(sidecar: Sidecar, tmp_path: Path) -> None:
    assert mcp(sidecar, "read", "one", "shelf:text").stdout == "hello" + "\n"
    done = mcp(sidecar, "read", "one", "shelf:blob")
    assert (done.status, done.stdout) == (0, "\n")
    assert "2 bytes" in done.stderr
    shape = mcp(sidecar, "read", "two", "shelf:blob", "--json").json
    assert base64.b64decode(shape["contents"][0]["data_base64"]) == b"\x00\x01"
    assert shape["reading"]["sandbox"]["side_effects"] == "read"
    assert mcp(sidecar, "read", "one", "shelf:text", "-o", tmp_path / "text").status == 0
    assert (tmp_path / "text").read_bytes() == b"hello"
    two = mcp(sidecar, "read", "one", "shelf:blob", "-o", tmp_path / "blob")
    assert two.status == 1
    assert not (tmp_path / "blob").exists()


def test_failures_say_why_and_with_json_in_the_answer_alone(sidecar: Sidecar) -> None:
    missing = mcp(sidecar, "read", "one", "shelf:nothing")
    assert (missing.status, missing.stdout) == (1, "")
    assert "no resource shelf:nothing  [TOOL_EXECUTION_FAILED]" in missing.stderr
    shape = mcp(sidecar, "read", "one", "shelf:nothing", "--json")
    assert (shape.status, shape.stderr) == (1, "")
    assert shape.json["reading"]["error"]["details"]["reason"] == "mcp_error"
    unknown = mcp(sidecar, "resources", "nobody")
    assert unknown.status == 2
    assert "nobody" in unknown.stderr
    assert mcp(sidecar, "prompt", "one", "greet", "whom").status == 2


def test_an_argument_that_a_prompt_requires_and_that_was_left_out_is_named(sidecar: Sidecar) -> None:
    done = mcp(sidecar, "prompt", "two", "greet")
    assert (done.status, done.stderr) == (2, "error: two greet requires whom\nGive whom=...\n")
    assert mcp(sidecar, "prompt", "two", "greet", "--json").error["message"] == "two greet requires whom"


def test_prompts_are_listed_and_filled_in(sidecar: Sidecar) -> None:
    listed = mcp(sidecar, "prompts", "one")
    assert listed.stdout.splitlines()[1].split() == ["one", "greet", "whom", "Greets."]
    assert mcp(sidecar, "prompts", "two", "--json").json["prompts"][0]["arguments"][0]["required"] is True
    done = mcp(sidecar, "prompt", "two", "greet", "whom=a=b")
    assert done.status == 0
    assert done.stdout.splitlines()[:2] == ["user:", "Greet a=b."]
    shape = mcp(sidecar, "prompt", "one", "greet", "whom=x", "--json").json
    assert [each["role"] for each in shape["messages"]] == ["user", "assistant", "user", "user"]
    assert shape["messages"][0]["content"] == {
        "type": "text",
        "text": "Greet x.",
        "media_type": "",
        "resource_uri": "",
        "annotations": None,
    }
    assert shape["messages"][2]["resource_uri"] == "shelf:text"
