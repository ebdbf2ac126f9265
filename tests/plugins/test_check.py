from __future__ import annotations

import json
from pathlib import Path

import pytest
from fumehood_sandbox import Level
from fumehood_server.plugins import PluginRefusedError, check_plugin, propose_pin
from fumehood_server.plugins.lock import read_lock

from .support import FakeDescribe, catalog_of, cli, declared, executable, python, tool_toml

GOOD = json.dumps(
    {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "What to say."}},
        "additionalProperties": False,
    }
)


async def test_a_good_plugin_is_reported_with_what_it_asks_for(tmp_path: Path) -> None:
    tools = [
        tool_toml("quiet", schema=GOOD, extra="""output_schema = '{"type": "object"}'\nargv = []"""),
        tool_toml("loud", side_effects="read", schema=GOOD, extra='requires = ["read", "binary:cat"]\nargv = []'),
    ]
    report = await check_plugin(cli(tmp_path / "one", *tools), describe=FakeDescribe())
    assert report.ok
    assert (report.name, report.problems) == ("one", ())
    assert [tool.name for tool in report.tools] == ["loud", "quiet"]
    assert report.levels == (Level.NONE, Level.READ)
    assert [str(each) for each in report.capabilities] == ["binary:cat", "binary:grep", "read"]
    assert set(report.definition_digests) == {"loud", "quiet"}
    assert [each.tool for each in report.warnings] == ["loud"]


@pytest.mark.parametrize(
    ("tool", "warning"),
    [
        (tool_toml("t", schema=GOOD), "no output schema"),
        (tool_toml("t", schema=GOOD).replace("Does what its name says, for tests.", "Short."), "description is short"),
        (tool_toml("t", side_effects="write", extra='requires = ["write"]'), "not idempotent"),
        (tool_toml("t", side_effects="write"), 'without requires = ["write"]'),
        (tool_toml("t", side_effects="read"), 'without requires = ["read"]'),
        (tool_toml("t", side_effects="external"), 'without requires = ["host:NAME:PORT"]'),
        (tool_toml("t", schema=GOOD.replace("false", "true")), "allows unknown arguments"),
        (tool_toml("t"), "the argument text has no description"),
        (
            tool_toml("t", schema='{"type": "object", "properties": {"n": {"type": "integer", "default": "x"}}}'),
            "the default of the argument n does not fit",
        ),
        (
            tool_toml("t", extra="[tool.limits]\nprocesses = 100000"),
            "limits.processes = 100000 is above the cap",
        ),
    ],
)
async def test_what_is_allowed_and_worth_a_second_look_is_a_warning(tmp_path: Path, tool: str, warning: str) -> None:
    report = await check_plugin(executable(tmp_path / "one", tool), describe=FakeDescribe())
    assert report.ok
    assert any(warning in each.message and each.tool == "t" for each in report.warnings), report.warnings


async def test_every_problem_is_reported_with_its_line(tmp_path: Path) -> None:
    folder = executable(tmp_path / "one", tool_toml("t", side_effects="raed", extra="timeout_s = 0"))
    report = await check_plugin(folder, describe=FakeDescribe())
    assert not report.ok
    assert (report.tools, report.levels) == ((), ())
    assert [
        f"{folder}/plugin.toml:{line}: " in each.message for line, each in zip((10, 12), report.problems, strict=True)
    ]


async def test_a_python_plugin_is_asked(tmp_path: Path) -> None:
    describe = FakeDescribe([declared("roll")])
    report = await check_plugin(python(tmp_path / "one"), describe=describe)
    assert [tool.name for tool in report.tools] == ["roll"]
    assert len(describe.asked) == 1
    assert not (await check_plugin(tmp_path / "one", describe=FakeDescribe(error=OSError(2, "x")))).ok


async def test_a_version_in_the_code_that_is_not_the_manifests_is_a_warning(tmp_path: Path) -> None:
    async def warned(version: str) -> list[str]:
        describe = FakeDescribe([declared("roll")], version=version)
        report = await check_plugin(python(tmp_path / "one"), describe=describe)
        assert report.ok
        return [each.message for each in report.warnings if not each.tool]

    (message,) = await warned("1.0.1\x1b[31m")
    assert message == 'plugin.toml has the version "1.0.0", which holds; the code says Plugin(version="1.0.1\\x1b[31m")'
    assert await warned("1.0.0") == await warned("") == []


async def test_a_pin_is_proposed_with_what_changes_and_taken_only_when_accepted(tmp_path: Path) -> None:
    folder, lock = executable(tmp_path / "one"), tmp_path / "fumehood.lock"
    proposal = await propose_pin(folder, lock, describe=FakeDescribe())
    assert (proposal.pinned, proposal.up_to_date) == (None, False)
    assert [change.summary for change in proposal.changes] == ["echo is new at level none"]
    assert not lock.exists()
    await proposal.accept()
    assert set(read_lock(lock).plugins) == {"one"}
    again = await propose_pin(folder, lock, describe=FakeDescribe())
    assert again.up_to_date
    executable(folder, tool_toml("echo", side_effects="write"))
    proposal = await propose_pin(folder, lock, describe=FakeDescribe())
    assert [change.summary for change in proposal.changes] == ["echo: level none -> write"]
    text = '[[plugin]]\npath = "one"\nmax_side_effects = "write"\n'
    assert (await catalog_of(tmp_path, text)).plugins[0].state == "refused"
    await proposal.accept()
    assert (await catalog_of(tmp_path, text, locked=True)).plugins[0].state == "serving"


async def test_what_changes_after_the_proposal_is_not_accepted_with_it(tmp_path: Path) -> None:
    folder = executable(tmp_path / "one")
    proposal = await propose_pin(folder, tmp_path / "fumehood.lock", describe=FakeDescribe())
    (folder / "run").write_text("#!/bin/sh\necho other\n")
    await proposal.accept()
    catalog = await catalog_of(tmp_path, '[[plugin]]\npath = "one"\n', locked=True)
    assert [reason.code for reason in catalog.plugins[0].reasons] == ["digest_changed"]


async def test_what_has_problems_cannot_be_pinned(tmp_path: Path) -> None:
    proposal = await propose_pin(tmp_path / "absent", tmp_path / "fumehood.lock", describe=FakeDescribe())
    with pytest.raises(PluginRefusedError):
        await proposal.accept()
    assert not (tmp_path / "fumehood.lock").exists()
