"""`fumehood tools` and `fumehood plugin list|show|logs|reload` against the real sidecar."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cli.command import fumehood
from tests.cli.fake import FakeSidecar
from tests.sidecar import Sidecar

TOOL_KEYS = [
    "name",
    "declared_name",
    "title",
    "description",
    "plugin",
    "plugin_version",
    "side_effects",
    "idempotent",
    "requires",
    "timeout_s",
    "isolation",
    "execution_mode",
    "limits",
    "permission",
    "availability",
    "definition_digest",
    "input_schema",
    "output_schema",
]
PLUGIN_KEYS = [
    "name",
    "version",
    "kind",
    "path",
    "digest",
    "state",
    "reasons",
    "max_side_effects",
    "tool_count",
    "grants",
]


def test_tools_are_a_table_of_those_that_could_run(sidecar: Sidecar) -> None:
    done = fumehood("tools", address=sidecar.target)
    heading, *rows = done.stdout.splitlines()
    assert heading.split() == ["TOOL", "LEVEL", "PERMISSION", "PLUGIN", "WHAT", "IT", "DOES"]
    assert rows[0].split(maxsplit=4) == ["add_up", "none", "allow", "sample", "Add numbers up."]
    assert not any(row.startswith("keep ") for row in rows)
    assert rows[-1] == "1 tool could not run now; `fumehood tools --all` says why."


def test_all_tools_come_with_the_reasons_and_what_would_mend_them(sidecar: Sidecar) -> None:
    done = fumehood("tools", "--all", address=sidecar.target)
    assert "keep could not run now:" in done.stdout
    assert "[level_not_granted]" in done.stdout


def test_tools_as_json_have_the_documented_shape(sidecar: Sidecar) -> None:
    tools = {tool["name"]: tool for tool in fumehood("tools", "--all", "--json", address=sidecar.target).json["tools"]}
    assert set(tools) == {"add_up", "say", "fail", "steps", "keep"}
    assert list(tools["add_up"]) == TOOL_KEYS
    assert tools["add_up"]["availability"] == {"available": True, "reasons": []}
    assert tools["add_up"]["input_schema"]["properties"]["times"]["maximum"] == 10
    assert list(tools["keep"]["availability"]["reasons"][0]) == ["code", "message", "remedy"]


def test_one_tool_is_shown_with_parameters_terms_and_a_call_to_copy(sidecar: Sidecar) -> None:
    text = fumehood("tools", "add_up", address=sidecar.target).stdout
    assert "add_up of plugin sample 1.0.0" in text
    assert "none: reads its own code" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["numbers", "array", "of", "integer", "required", "What", "to", "add."] in rows
    assert ["times", "integer,", "1", "to", "10", "1", "How", "often."] in rows
    assert "fumehood call add_up numbers=1" in text
    assert list(fumehood("tools", "add_up", "--json", address=sidecar.target).json["tool"]) == TOOL_KEYS


def test_definitions_are_printed_as_a_models_api_takes_them(sidecar: Sidecar) -> None:
    every = json.loads(fumehood("tools", "--format", "openai", address=sidecar.target).stdout)
    names = [tool["name"] for tool in fumehood("tools", "--json", address=sidecar.target).json["tools"]]
    assert [each["function"]["name"] for each in every] == names
    one = json.loads(fumehood("tools", names[0], "--format", "openai", address=sidecar.target).stdout)
    assert one == every[:1]
    wrong = fumehood("tools", "nothing", "--format", "mcp", address=sidecar.target)
    assert (wrong.status, wrong.stdout) == (2, "")


def test_an_unknown_tool_is_status_2_and_near_names_are_given(sidecar: Sidecar) -> None:
    done = fumehood("tools", "stepz", address=sidecar.target)
    assert (done.status, done.stdout) == (2, "")
    assert "Did you mean steps?" in done.stderr
    error = fumehood("tools", "stepz", "--json", address=sidecar.target).error
    assert (error["code"], error["details"]["near"]) == ("TOOL_NOT_FOUND", ["steps"])


def test_plugins_are_listed_and_those_that_do_not_serve_say_why(sidecar: Sidecar, plugin_folder: Path) -> None:
    done = fumehood("plugin", "list", address=sidecar.target)
    assert ["sample", "1.0.0", "python", "serving", "read", "5", str(plugin_folder)] in [
        line.split() for line in done.stdout.splitlines()
    ]
    assert "absent is refused:" in done.stdout
    shapes = fumehood("plugin", "list", "--json", address=sidecar.target).json["plugins"]
    assert [list(shape) for shape in shapes] == [PLUGIN_KEYS, PLUGIN_KEYS]
    assert [shape["state"] for shape in shapes] == ["serving", "refused"]


def test_a_plugin_is_shown_with_what_each_level_may_touch_and_what_holds_it(sidecar: Sidecar) -> None:
    fumehood("call", "say", "text=start", address=sidecar.target)
    text = fumehood("plugin", "show", "sample", address=sidecar.target).stdout
    assert "Sandbox of level none" in text
    assert "seccomp: " in text
    shape = fumehood("plugin", "show", "sample", "--json", address=sidecar.target).json["plugin"]
    assert list(shape) == [*PLUGIN_KEYS, "tools", "workers", "sandboxes"]
    assert list(shape["workers"][0]) == [
        "id",
        "state",
        "side_effects",
        "calls_in_flight",
        "calls_served",
        "start_time",
        "process_id",
    ]
    assert list(shape["sandboxes"][0]) == [
        "side_effects",
        "readable_paths",
        "writable_paths",
        "hosts",
        "private_addresses",
        "engines",
        "secrets",
        "environment",
        "limits",
        "receipt",
    ]
    assert shape["sandboxes"][0]["writable_paths"] == []
    assert all(path.startswith("/") for path in shape["sandboxes"][0]["readable_paths"])


def test_logs_are_shown_and_come_as_json_lines(sidecar: Sidecar) -> None:
    done = fumehood("plugin", "logs", "sample", "--json", address=sidecar.target)
    assert done.status == 0
    assert list(done.lines[0]) == [
        "time",
        "source",
        "level",
        "message",
        "worker_id",
        "call_id",
        "dropped",
        "fields",
    ]
    assert "sidecar" in fumehood("plugin", "logs", "sample", "-n", "1", address=sidecar.target).stdout


def test_a_reload_answers_with_the_plugin_and_one_that_is_refused_says_why(sidecar: Sidecar) -> None:
    done = fumehood("plugin", "reload", "sample", "--json", address=sidecar.target)
    assert (done.status, done.json["plugin"]["state"]) == (0, "serving")
    done = fumehood("plugin", "reload", "absent", "--json", address=sidecar.target)
    assert (done.status, done.error["code"]) == (2, "RELOAD_REFUSED")


def test_a_plugin_is_disabled_and_enabled_by_commands(sidecar: Sidecar) -> None:
    done = fumehood("plugin", "disable", "sample", "--reason", "broken", "--cancel-calls", address=sidecar.target)
    assert (done.status, done.stdout.splitlines()[0]) == (0, "sample is disabled, 0 calls cancelled.")
    failed = fumehood("call", "say", "text=x", "--json", address=sidecar.target)
    assert (failed.status, failed.json["error"]["code"]) == (1, "TOOL_UNAVAILABLE")
    assert "sample was disabled by unix:: broken" in fumehood("plugin", "list", address=sidecar.target).stdout
    done = fumehood("plugin", "disable", "sample", "--json", address=sidecar.target)
    assert (done.json["plugin"]["state"], done.json["cancelled_calls"]) == ("unavailable", 0)
    done = fumehood("plugin", "enable", "sample", address=sidecar.target)
    assert (done.status, done.stdout.splitlines()[0]) == (0, "sample is enabled.")
    assert fumehood("plugin", "enable", "sample", "--json", address=sidecar.target).json["plugin"]["state"] == "serving"
    assert fumehood("call", "say", "text=x", address=sidecar.target).status == 0


def test_an_unknown_plugin_is_status_2(sidecar: Sidecar) -> None:
    for command in ("show", "logs", "reload", "disable", "enable"):
        done = fumehood("plugin", command, "nobody", "--json", address=sidecar.target)
        assert (done.status, done.error["code"]) == (2, "PLUGIN_NOT_FOUND")


def test_names_of_tools_and_plugins_are_completed(sidecar: Sidecar) -> None:
    def completed(words: str) -> list[str]:
        more = {"_FUMEHOOD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        lines = fumehood(address=sidecar.target, more=more).stdout.splitlines()
        return [line.removeprefix("plain,") for line in lines]

    assert completed("fumehood call s") == ["say", "steps"]
    assert completed("fumehood tools ad") == ["add_up"]
    assert completed("fumehood plugin show sa") == ["sample"]
    assert "doctor" in completed("fumehood do")
    assert completed("fumehood call say t") == ["text="]
    assert completed("fumehood call say style=l") == ["style=loud"]
    assert completed("fumehood call say text=x style = l") == ["loud"], "bash makes a word of ="
    assert completed("fumehood call say style = p text=x n") == ["note="]
    assert completed("fumehood call say style =") == ["plain", "loud"]


def test_bash_completes_the_names_and_values_of_arguments(sidecar: Sidecar) -> None:
    program = Path(sys.executable).with_name("fumehood")
    for typed, completed in (
        ("(fumehood call say st)", "style="),
        ("(fumehood call say style = lo)", "loud"),
        ("(fumehood call say style =)", "plain loud"),
    ):
        script = f"""
            eval "$({program} completion bash)"
            compopt() {{ told="$1 $2"; }}
            COMP_WORDS={typed}; COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
            _fumehood_completion {program}
            echo "${{COMPREPLY[*]}}$told"
        """
        done = subprocess.run(
            ["/bin/bash", "-c", script],
            env={**os.environ, "FUMEHOOD_ADDRESS": sidecar.target},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == completed + ("-o nospace" if completed.endswith("=") else "")


def test_a_name_that_a_shell_would_run_is_not_completed(fake: FakeSidecar) -> None:
    names = {"$(touch x)": {}, "a;b": {}, "fine": {}, "x\nplain,y": {}}
    fake.tools[0].definition.input_schema_json = json.dumps({"type": "object", "properties": names})
    more = {"_FUMEHOOD_COMPLETE": "bash_complete", "COMP_WORDS": "fumehood call odd ", "COMP_CWORD": "3"}
    assert fumehood(address=fake.target, more=more).stdout.splitlines() == ["plain,fine="]


def test_the_fields_within_objects_and_lists_are_shown(fake: FakeSidecar) -> None:
    condition = {
        "type": "object",
        "properties": {"op": {"enum": ["eq", "gt"], "description": "How."}, "value": {"type": "number", "default": 0}},
        "required": ["op"],
    }
    schema = {
        "type": "object",
        "properties": {
            "filters": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/c"}, {"$ref": "#/$defs/all"}]}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "$defs": {"c": condition, "all": {"type": "object", "properties": {"all": {"$ref": "#/properties/filters"}}}},
    }
    fake.tools[0].definition.input_schema_json = json.dumps(schema)
    rows = [line.split() for line in fumehood("tools", "odd", address=fake.target).stdout.splitlines()]
    assert ["filters[].op", "eq", "|", "gt", "required", "How."] in rows
    assert ["filters[].value", "number", "0"] in rows
    assert ["filters[].all[].op", "eq", "|", "gt", "required", "How."] in rows
    assert ["labels.*", "string"] in rows
