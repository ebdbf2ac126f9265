"""Packages of Python plugins, from the declaration to the call: locked, installed outside of the folder, verified."""

from __future__ import annotations

import json
import os
import platform
import pty
import subprocess
import textwrap
from pathlib import Path

import pytest
from fumehood_server.plugins.environments.installer import find_installer
from fumehood_server.plugins.environments.plugin_lock import plugin_lock_text
from fumehood_server.plugins.environments.resolve import resolve

from tests import preloaded
from tests.cli.command import COMMAND, Done, environment, fumehood
from tests.cli.wheels import wheel
from tests.plugins.support import manifest_of
from tests.plugins.wheels import index_environment, make_sdist, make_wheel
from tests.sidecar import running_sidecar, write_plugin

CODE = """
    import greeting
    from fumehood_sdk import Plugin

    plugin = Plugin("host", version="1.0.0")

    @plugin.tool(side_effects="none", isolation="process")
    def greet_warm(name: str) -> str:
        \"\"\"Greet somebody by a package of ours.\"\"\"
        return greeting.greet(name)

    @plugin.tool(side_effects="none", isolation="call")
    def greet_fresh(name: str) -> str:
        \"\"\"Greet somebody by a package of ours, in a process of its own.\"\"\"
        return greeting.greet(name)

    @plugin.tool(side_effects="none")
    def look() -> list[str]:
        \"\"\"Where the package was imported from, and whether it can be changed.\"\"\"
        import os
        return [greeting.__file__, str(os.access(greeting.__file__, os.W_OK))]

    @plugin.tool(side_effects="none")
    def miss() -> None:
        \"\"\"Import what no package has.\"\"\"
        import curtsy
"""
DEPENDS = 'dependencies = ["Greeting >= 1"]\n'


EACH = pytest.mark.parametrize(
    "installer", ["uv", pytest.param("pip", marks=pytest.mark.slow("seconds of processor time, as uv in none"))]
)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index in which `greeting` requires `politeness`."""
    index = tmp_path / "index"
    make_wheel(index, "politeness", files={"politeness.py": "WORD = 'Dear'\n"})
    greet = """
        import politeness

        def greet(name):
            return f"{politeness.WORD} {name}"
    """
    make_wheel(index, "greeting", files={"greeting.py": greet}, requires=["politeness"])
    return index


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    return write_plugin(tmp_path / "host", "host", CODE, manifest=DEPENDS)


def write_lock(plugin: Path, index: Path) -> None:
    """What `plugin lock --no-build` does, without a process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in index_environment(index).items():
            patch.setenv(name, value)
        lock = resolve(manifest_of(plugin).dependencies, find_installer("uv"))
    (plugin / "plugin.lock").write_text(plugin_lock_text(lock))


def run(index: Path, *arguments: str | Path) -> Done:
    """Run `fumehood` with the index, in the folder around it, whose fumehood.toml holds where there is one."""
    return fumehood(*arguments, folder=index.parent, more=index_environment(index))


def configure(index: Path, *plugins: Path) -> Path:
    path = index.parent / "fumehood.toml"
    path.write_text("".join(f"[[plugin]]\npath = {json.dumps(str(each))}\n" for each in plugins))
    return path


@EACH
def test_packages_of_a_lock_are_imported_in_warm_and_in_fresh_processes(
    index: Path, plugin: Path, installer: str
) -> None:
    configure(index, plugin)
    before = sorted(plugin.iterdir())
    old_umask = os.umask(0o077)  # plugins of a root sidecar run as others, who must be able to read
    try:
        locked = run(index, "plugin", "lock", plugin, "--with", installer, "--json")
    finally:
        os.umask(old_umask)
    assert locked.status == 0, locked.stderr
    assert [(each["name"], each["version"]) for each in locked.json["packages"]] == [
        ("greeting", "1.0.0"),
        ("politeness", "1.0.0"),
    ]
    text = (plugin / "plugin.lock").read_text()
    assert not any(each in text for each in ("://", str(index), "index"))
    assert sorted(plugin.iterdir()) == sorted([*before, plugin / "plugin.lock"])
    state = index.parent / ".fumehood"
    with running_sidecar([plugin], server=f"state_dir = {json.dumps(str(state))}") as sidecar:
        for tool in ("greet_warm", "greet_fresh"):
            done = fumehood("call", tool, "name=Ada", address=sidecar.target)
            assert (done.status, done.stdout.strip()) == (0, "Dear Ada"), done.stderr
        looked = fumehood("call", "look", "--json", address=sidecar.target)
        missed = fumehood("call", "miss", "--json", address=sidecar.target)
    assert looked.json["details"] == ["/run/fumehood/packages/greeting.py", "False"]
    assert missed.json["error"]["details"]["exception"] == "ModuleNotFoundError"
    for each in (
        "'curtsy'",
        "no package of plugin.lock",
        f"cpython {platform.python_version()}",
        "`fumehood plugin lock`",
    ):
        assert each in missed.json["error"]["message"]


def test_check_of_a_lock_fails_where_the_dependencies_are_others_and_asks_no_index(index: Path, plugin: Path) -> None:
    missing = run(index, "plugin", "lock", plugin, "--check", "--json")
    assert (missing.status, missing.error["details"]["reason"]) == (1, "dependencies_unlocked")
    write_lock(plugin, index)
    for each in index.iterdir():
        each.unlink()
    assert run(index, "plugin", "lock", plugin, "--check").status == 0
    manifest = plugin / "plugin.toml"
    manifest.write_text(manifest.read_text().replace("Greeting >= 1", "greeting>=1.1"))
    stale = run(index, "plugin", "lock", plugin, "--check", "--json")
    assert (stale.status, stale.error["details"]["reason"]) == (1, "lock_stale")
    assert stale.error["todo"] == f"fumehood plugin lock {plugin}"


@EACH
def test_a_source_distribution_is_refused_by_name_and_its_code_never_runs(
    index: Path, plugin: Path, installer: str
) -> None:
    ran = index.parent / "ran"
    make_sdist(index, "greeting", "2.0.0", touches=ran)
    manifest = plugin / "plugin.toml"
    manifest.write_text(manifest.read_text().replace("Greeting >= 1", "greeting>=2"))
    done = run(index, "plugin", "lock", plugin, "--with", installer)
    assert done.status == 1
    assert "greeting" in done.stderr
    assert "Wheels alone" in done.stderr
    assert not ran.exists()
    assert not (plugin / "plugin.lock").exists()


@EACH
def test_a_wheel_with_other_content_under_the_same_name_is_not_installed(
    index: Path, plugin: Path, installer: str
) -> None:
    write_lock(plugin, index)
    make_wheel(index, "politeness", files={"politeness.py": "WORD = 'Hey'\n"})
    done = run(index, "plugin", "build", plugin, "--with", installer, "--json")
    assert (done.status, done.error["code"]) == (1, "ENVIRONMENT_FAILED")
    assert "politeness" in done.error["message"]
    environments = index.parent / "state" / "fumehood" / "environments"
    assert [each for each in environments.iterdir() if each.suffix != ".lock"] == []
    make_wheel(index, "politeness", files={"politeness.py": "WORD = 'Dear'\n"})
    write_lock(plugin, index)
    assert run(index, "plugin", "build", plugin, "--with", installer).status == 0


def test_a_plugin_without_its_packages_is_unavailable_by_name_until_they_are_built(index: Path, plugin: Path) -> None:
    state = index.parent / ".fumehood"
    config = configure(index, plugin)
    write_lock(plugin, index)
    with running_sidecar([plugin], server=f"state_dir = {json.dumps(str(state))}") as sidecar:
        shown = fumehood("plugin", "show", "host", "--json", address=sidecar.target).json["plugin"]
        assert shown["reasons"][0]["code"] == "environment_missing"
        assert shown["reasons"][0]["remedy"] == f"fumehood plugin build {plugin}"
        assert not state.joinpath("environments").exists()  # nothing is downloaded while it serves
        assert run(index, "plugin", "build", "--config", config).status == 0
        assert fumehood("plugin", "reload", "host", address=sidecar.target).status == 0
        assert fumehood("call", "greet_warm", "name=Ada", address=sidecar.target).stdout == "Dear Ada\n"


def test_changed_packages_are_refused_by_name_until_they_are_built_anew(index: Path, plugin: Path) -> None:
    state = index.parent / ".fumehood"
    configure(index, plugin)
    assert run(index, "plugin", "lock", plugin).status == 0
    (module,) = state.glob("environments/*/contents/politeness.py")
    server = f"state_dir = {json.dumps(str(state))}\nidle_stop_s = 0.05"
    with running_sidecar([plugin], server=server) as sidecar:

        def call() -> Done:
            return fumehood("call", "greet_fresh", "name=Ada", "--json", address=sidecar.target)

        assert call().status == 0
        module.chmod(0o644)
        module.write_text(module.read_text().replace("Dear", "Curs"))
        assert fumehood("plugin", "reload", "host", address=sidecar.target).status == 0
        error = call().json["error"]
        assert error["code"] == "TOOL_UNAVAILABLE"
        assert "environment_changed" in json.dumps(error)
        tools = fumehood("tools", "greet_fresh", "--json", address=sidecar.target).json["tool"]
        assert [each["code"] for each in tools["availability"]["reasons"]] == ["environment_changed"]
        assert run(index, "plugin", "build", plugin).status == 0
        assert fumehood("plugin", "reload", "host", address=sidecar.target).status == 0
        assert call().status == 0


def test_one_build_serves_all_who_want_it_at_once(index: Path, plugin: Path) -> None:
    other = write_plugin(index.parent / "other", "other", CODE.replace('"host"', '"other"'), manifest=DEPENDS)
    for folder in (plugin, other):
        write_lock(folder, index)
    started = [
        preloaded.Popen(
            [*COMMAND, "plugin", "build", str(folder), "--json"],
            cwd=index.parent,
            env=environment(more=index_environment(index)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for folder in (plugin, other, plugin)
    ]
    ended = [process.communicate(timeout=60) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], ended
    built = [json.loads(stdout)["plugins"][0] for stdout, _ in ended]
    assert sorted(each["built"] for each in built) == [False, False, True]
    assert len({each["environment"] for each in built}) == 1


def test_add_installs_the_packages_before_it_shows_what_the_plugin_asks_for(index: Path, plugin: Path) -> None:
    write_lock(plugin, index)
    checked = run(index, "plugin", "check", plugin, "--json")
    assert [each["code"] for each in checked.json["problems"]] == ["environment_missing"]
    added = run(index, "plugin", "add", plugin, "--yes", "--json")
    assert added.status == 0, added.stderr
    assert {each["name"] for each in added.json["plugin"]["tools"]} == {"greet_warm", "greet_fresh", "look", "miss"}
    assert run(index, "plugin", "check", plugin).status == 0


def test_add_installs_nothing_before_somebody_at_the_terminal_has_agreed(index: Path, plugin: Path) -> None:
    write_lock(plugin, index)
    environments = index.parent / ".fumehood" / "environments"
    nobody = run(index, "plugin", "add", plugin)
    assert (nobody.status, "Give --yes" in nobody.stderr) == (2, True), nobody.stderr
    assert not environments.exists()
    refused = at_terminal(index, "n\n", "plugin", "add", plugin)
    assert "greeting==1.0.0, politeness==1.0.0" in refused
    assert "Nothing was changed." in refused
    assert not environments.exists()
    agreed = at_terminal(index, "y\nn\n", "plugin", "add", plugin)
    assert agreed.index("Go on with host?") < agreed.index("greet_warm") < agreed.index("Pin host?")
    assert [each.suffix for each in environments.iterdir()].count("") == 1
    again = at_terminal(index, "n\n", "plugin", "add", plugin)
    assert ("Go on" in again, "Pin host?" in again) == (False, True)


def test_add_locks_and_installs_what_a_wheel_requires(index: Path) -> None:
    code = textwrap.dedent(CODE).replace('"host"', '"greets"')
    points = "[fumehood.plugins]\ngreets = greets_plugin:plugin\n"
    requires = ("Greeting>=1", "fumehood-sdk>=0.1", 'absent>=1; extra == "dev"')
    path = wheel(index.parent / "dist", {"greets_plugin.py": code}, points, requires=requires)
    shown = at_terminal(index, "n\n", "plugin", "add", path)
    assert "has Greeting>=1 resolved, locked and installed" in shown
    assert "Go on with greets?" in shown
    assert list((index.parent / ".fumehood/installed").iterdir()) == []
    added = run(index, "plugin", "add", path, "--yes", "--json")
    assert added.status == 0, added.stderr
    assert "greet_warm" in {each["name"] for each in added.json["plugin"]["tools"]}
    folder = index.parent / ".fumehood/installed/greets-1.0.0"
    assert '"greeting"' in (folder / "plugin.lock").read_text()
    again = run(index, "plugin", "add", path)
    assert (again.status, "Exactly this is pinned already." in again.stdout) == (0, True), again.stderr
    bad = wheel(index.parent / "bad", {"greets_plugin.py": code}, points, requires=["no requirement at all"])
    refused = run(index, "plugin", "add", bad, "--yes")
    assert (refused.status, "Requires-Dist: no requirement at all" in refused.stderr) == (2, True), refused.stderr


def at_terminal(index: Path, answers: str, *arguments: str | Path) -> str:
    """What `fumehood` prints to a terminal at which somebody types `answers`."""
    ours, theirs = pty.openpty()
    os.write(ours, answers.encode())
    process = preloaded.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=index.parent,
        env=environment(more=index_environment(index)),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        return process.communicate(timeout=60)[0]
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)


def test_packages_that_contradict_the_sdk_are_refused_when_they_are_locked(index: Path, plugin: Path) -> None:
    make_wheel(index, "greeting", "1.5.0", files={"greeting.py": ""}, requires=["pydantic<2"])
    manifest = plugin / "plugin.toml"
    manifest.write_text(manifest.read_text().replace("Greeting >= 1", "greeting>=1.5"))
    make_wheel(index, "pydantic", "1.10.0", files={"pydantic.py": ""})
    refused = run(index, "plugin", "lock", plugin)
    assert (refused.status, "pydantic" in refused.stderr) == (1, True)
    manifest.write_text(manifest.read_text().replace("greeting>=1.5", "greeting<1.5"))
    assert run(index, "plugin", "lock", plugin).status == 0
