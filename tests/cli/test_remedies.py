"""What commands say there is to do, done as they say it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from fumehood_server.cli.arguments import gather_arguments
from fumehood_server.cli.schema import example_call

from tests.cli.command import fumehood
from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = '''
    from fumehood_sdk import Plugin

    plugin = Plugin("ready", version="1.0.0")

    @plugin.tool(side_effects="none")
    def say(text: str) -> str:
        """Say a text, which is all it does."""
        return text
'''
ASKS = '[plugin.tools.say]\npermission = "require_approval"'


def edit(sidecar: Sidecar, more: str, *, server: str = "") -> None:
    path = sidecar.folder / "fumehood.toml"
    path.write_text(path.read_text().replace("[server]\n", f"[server]\n{server}\n", 1) + more)


def test_a_plugin_that_has_changed_is_taken_by_the_command_that_the_refusal_names(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "ready", "ready", CODE)
    with running_sidecar([folder]) as sidecar:
        (folder / "ready.py").write_text((folder / "ready.py").read_text() + "\n# changed\n")
        refused = fumehood("plugin", "reload", "ready", address=sidecar.target)
        assert refused.status == 2
        (command,) = re.findall(r"fumehood (plugin add \S+)", refused.stderr)
        assert "Mend" not in refused.stderr
        added = fumehood(*command.split(), "--yes", folder=sidecar.folder)
        assert "The sidecar that runs has taken it." in added.stdout, added.stderr
        assert fumehood("plugin", "reload", "ready", address=sidecar.target).status == 0


def test_what_takes_a_restart_says_so_and_what_does_not_is_taken(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "ready", "ready", CODE)
    with running_sidecar([folder]) as sidecar:
        edit(sidecar, f"\n{ASKS}\n")
        assert fumehood("reload", address=sidecar.target).status == 0
        edit(sidecar, "", server="max_arguments_bytes = 50000")
        refused = fumehood("reload", address=sidecar.target)
        assert refused.status == 2
        assert "server.max_arguments_bytes" in refused.stderr
        assert "start it again with `fumehood serve`" in refused.stderr
        assert "reload again" not in refused.stderr


def test_a_folder_that_the_sidecar_has_not_loaded_is_for_reload(tmp_path: Path) -> None:
    first = write_plugin(tmp_path / "first", "first", CODE.replace('"ready"', '"first"').replace("def say", "def one"))
    second = write_plugin(tmp_path / "ready", "ready", CODE)
    with running_sidecar([first]) as sidecar:
        edit(sidecar, f'\n[[plugin]]\npath = "{second}"\n')
        added = fumehood("plugin", "add", second, "--yes", folder=sidecar.folder)
        assert "`fumehood reload`" in added.stdout, added.stderr
        assert "plugin reload" not in added.stdout
        assert fumehood("reload", address=sidecar.target).stdout == "added ready\n"


@pytest.mark.parametrize("how", [("--timeout", "2"), ("--no-wait",)], ids=" ".join)
def test_a_call_that_was_not_waited_for_runs_by_its_id_once_it_is_approved(
    tmp_path: Path, how: tuple[str, ...]
) -> None:
    folder = write_plugin(tmp_path / "ready", "ready", CODE)
    with running_sidecar([(folder, ASKS)]) as sidecar:
        ended = fumehood("call", "say", "text=hello", *how, address=sidecar.target)
        assert ended.status == 1
        (approval,) = set(re.findall(r"approval-\w+", ended.stderr))
        (call_id,) = re.findall(r"--call-id (call-\w+)", ended.stderr)
        assert f"{approval} stays open" in ended.stderr
        fumehood("approvals", "approve", approval, address=sidecar.target)
        done = fumehood("call", "say", "text=hello", "--call-id", call_id, address=sidecar.target)
        assert (done.status, done.stdout) == (0, "hello\n"), done.stderr


def test_an_approvals_refusal_tells_nobody_of_an_id_that_a_model_has_not(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "ready", "ready", CODE)
    with running_sidecar([(folder, ASKS)]) as sidecar:
        done = fumehood("call", "say", "text=x", "--no-wait", "--json", address=sidecar.target)
    assert "call_id" not in done.json["error"]["message"]
    assert "waits to be decided" in done.json["error"]["message"]


def test_keys_that_can_not_be_made_are_status_2_as_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "fumehood.toml").write_text('[server]\nstate_dir = "file/state"\n')
    done = fumehood("journal", "keygen", folder=tmp_path)
    assert done.status == 2
    assert "state_dir" in done.stderr
    (tmp_path / "fumehood.toml").write_text('[server]\nstate_dir = "state"\n')
    assert fumehood("journal", "keygen", folder=tmp_path).status == 0


FILTER = {
    "type": "object",
    "required": ["op", "value"],
    "properties": {"op": {"enum": ["eq", "ne"]}, "value": {"type": "integer", "minimum": 3}},
    "additionalProperties": False,
}
SCHEMAS: list[dict[str, Any]] = [
    {"required": ["where"], "properties": {"where": FILTER}},
    {"required": ["filters"], "properties": {"filters": {"type": "array", "minItems": 1, "items": FILTER}}},
    {
        "required": ["a"],
        "properties": {"a": {"$ref": "#/$defs/box"}},
        "$defs": {"box": {"type": "object", "required": ["in"], "properties": {"in": {"$ref": "#/$defs/filter"}}}},
    },
    {"required": ["name"], "properties": {"name": {"type": "string", "minLength": 5}}},
    {"required": ["n"], "properties": {"n": {"type": "number", "maximum": 0.5}}},
]
SCHEMAS[2]["$defs"]["filter"] = FILTER


@pytest.mark.parametrize("part", SCHEMAS, ids=[", ".join(each["required"]) for each in SCHEMAS])
def test_the_call_to_copy_fits_the_schema(part: dict[str, Any]) -> None:
    schema = {"type": "object", **part}
    _, _, _, *pairs = shlex.split(example_call("tool", schema))
    made = gather_arguments(tuple(pairs), None, schema)
    assert jsonschema_rs.is_valid(schema, made), json.dumps(made)
