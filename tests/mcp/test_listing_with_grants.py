"""`list_with_grants`: a server that doesn't list its tools without what it is granted, held at what that is."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import fumehood
from tests.cli.serving import CODE, running
from tests.mcp.reach import open_folders
from tests.mcp.support import SERVERS, Caller, mcp_plugin
from tests.mcp.test_remote import remote_plugin, remote_server
from tests.mcp.web import web_server
from tests.sidecar import running_sidecar, write_plugin

LIST = "list_with_grants = true"


@dataclass(frozen=True)
class Picky:
    """The plugin of a server that wants all of its grants, and what grants each."""

    plugin: Path
    secrets: str
    read: str
    hosts: str
    tables: str

    def entry(self, *lines: str) -> str:
        return "\n".join(('max_side_effects = "external"', *lines))

    @property
    def all(self) -> tuple[str, ...]:
        return self.secrets, self.read, self.hosts

    def written(self, folder: Path, entry: str) -> Path:
        """A fumehood.toml that names it."""
        (folder / "fumehood.toml").write_text(
            f"[[plugin]]\npath = {json.dumps(str(self.plugin))}\n{entry}\n{self.tables}"
        )
        return folder


@pytest.fixture
def picky(tmp_path: Path) -> Iterator[Picky]:
    with open_folders("notes") as (notes,), web_server() as port:
        (notes / "note").write_text("a note")
        secret = tmp_path / "secret"
        secret.write_text("s3cret-value")
        secret.chmod(0o600)
        environment = {
            "TOKEN": '{ secret = "token" }',
            "NOTE": json.dumps(str(notes / "note")),
            "SERVICE": json.dumps(f"http://127.0.0.1:{port}/"),
        }
        plugin = mcp_plugin(tmp_path / "picky", command='["python", "picky.py"]', environment=environment)
        shutil.copy(SERVERS / "picky.py", plugin)
        yield Picky(
            plugin=plugin,
            secrets='secrets = ["token"]',
            read=f"read = [{json.dumps(str(notes))}]",
            hosts=f'hosts = ["127.0.0.1:{port}"]\nallow_private = ["127.0.0.1"]',
            tables=f"[secrets.token]\nfile = {json.dumps(str(secret))}\n",
        )


def test_a_server_is_asked_with_its_grants_where_the_operator_says_so_and_not_otherwise(
    tmp_path: Path, picky: Picky
) -> None:
    def check(*lines: str, option: str = "--with-grants") -> tuple[int, str]:
        folder = picky.written(tmp_path, picky.entry(*lines))
        done = fumehood("plugin", "check", str(picky.plugin), *filter(None, [option]), folder=folder)
        return done.status, done.stdout + done.stderr

    for lines, option in (((*picky.all,), "--with-grants"), ((LIST, *picky.all), "")):
        status, said = check(*lines, option=option)
        assert (status, "picky: not my key" in said) == (1, True), said
    status, said = check(LIST, *picky.all)
    assert status == 0, said
    for missing, told in zip(picky.all, ("not my key", "no note", "no service"), strict=True):
        status, said = check(LIST, *(each for each in picky.all if each != missing))
        assert (status, f"picky: {told}" in said) == (1, True), said


def test_a_program_that_a_plugin_may_change_is_not_started(tmp_path: Path, picky: Picky) -> None:
    """By its place: what is looked for among programs is a link to there."""
    with open_folders("bin", "programs") as (found, programs):
        program = programs / "picky.sh"
        program.write_text("#!/bin/sh\nexec python3 picky.py\n")
        program.chmod(0o755)
        (found / program.name).symlink_to(program)
        manifest = picky.plugin / "plugin.toml"
        manifest.write_text(manifest.read_text().replace('["python", "picky.py"]', json.dumps([program.name])))
        writer = write_plugin(tmp_path / "writer", "writer", CODE)
        grant = f"[[plugin]]\npath = {json.dumps(str(writer))}\nwrite = [{json.dumps(str(programs))}]\n"
        for more, held in (("", True), (grant, False)):
            picky.written(tmp_path, picky.entry(LIST, *picky.all, more))
            path = {"PATH": f"{found}:{os.environ['PATH']}"}
            done = fumehood("plugin", "check", str(picky.plugin), "--with-grants", folder=tmp_path, more=path)
            told = "a plugin is granted writing to" in done.stdout + done.stderr
            assert (done.status == 0, told) == (held, not held), done.stdout + done.stderr


def test_it_is_asked_at_the_granted_level_and_no_higher(tmp_path: Path, picky: Picky) -> None:
    for level in ("read", "write"):  # neither has a network, whatever hosts are granted
        picky.written(tmp_path, "\n".join((f'max_side_effects = "{level}"', LIST, *picky.all)))
        done = fumehood("plugin", "check", str(picky.plugin), "--with-grants", folder=tmp_path)
        assert (done.status, "picky: no service" in done.stdout + done.stderr) == (1, True)


def called(picky: Picky, folder: Path, *lines: str) -> dict[str, Any]:
    """A call of a tool that says it only reads, once its plugin is pinned."""
    picky.written(folder, picky.entry(LIST, *lines, *picky.all))
    assert fumehood("plugin", "add", str(picky.plugin), "--yes", folder=folder).status == 0
    with running("serve", folder=folder) as sidecar:
        sidecar.wait_for("^listening ")
        found = fumehood("call", "echo", "text=hello", "--json", folder=folder).json
        assert isinstance(found, dict)
        return found


def test_its_tools_are_called_in_the_process_of_its_highest_level(tmp_path: Path, picky: Picky) -> None:
    result = called(picky, tmp_path, "one_process = true")
    assert result["content"][0]["text"] == "hello", result
    assert result["sandbox"]["side_effects"] == "external"


def test_a_process_of_a_lower_level_has_no_more_for_it(tmp_path: Path, picky: Picky) -> None:
    result = called(picky, tmp_path)
    assert "picky: no service" in result["error"]["message"], result


def test_a_secret_of_one_tool_alone_is_not_there_when_it_is_asked(tmp_path: Path, picky: Picky) -> None:
    tool = '[plugin.tools.echo]\nsecrets = ["token"]'
    for entry, held in ((picky.entry(LIST, *picky.all), True), (picky.entry(LIST, *picky.all[1:], tool), False)):
        picky.written(tmp_path, entry)
        done = fumehood("plugin", "check", str(picky.plugin), "--with-grants", folder=tmp_path)
        assert (done.status == 0, "picky: not my key" not in done.stdout + done.stderr) == (held, held), done.stdout


def test_a_secret_in_a_definition_is_refused_and_not_shown(tmp_path: Path, picky: Picky) -> None:
    said = "Says what it is told, in two forms."
    server = picky.plugin / "server.py"
    for told, status in (("the key of somebody else", 0), ("s3cret-value", 1)):
        server.write_text((SERVERS / "small.py").read_text().replace(said, f"Asks by {told}."))
        picky.written(tmp_path, picky.entry(LIST, *picky.all))
        done = fumehood("plugin", "add", str(picky.plugin), "--yes", "--json", folder=tmp_path)
        assert done.status == status, done.stdout
        assert "s3cret-value" not in done.stdout + done.stderr
        told_why = "has the value of the secret token in the definition of its tool echo" in done.stdout + done.stderr
        assert told_why == bool(status)
    assert "s3cret-value" not in (tmp_path / "fumehood.lock").read_text()


def test_what_is_not_pinned_any_more_is_not_started_with_grants_until_somebody_adds_it(
    tmp_path: Path, picky: Picky
) -> None:
    """By a server that tells, in a folder that it may write to, that it was started."""
    with open_folders("marks") as (marks,):
        start = f"open({str(marks / 'mark')!r}, 'a').write('x')\n" + (SERVERS / "picky.py").read_text()
        start = start.replace("from __future__ import annotations\n", "")
        (picky.plugin / "picky.py").write_text(start)
        entry = picky.entry(LIST, "one_process = true", f"write = [{json.dumps(str(marks))}]", *picky.all)
        picky.written(tmp_path, entry)

        def starts() -> int:
            return len((marks / "mark").read_text())

        def served(*options: str) -> tuple[str, list[str]]:
            """What a sidecar says of the plugin that has called none of its tools."""
            with running("serve", *options, folder=tmp_path) as sidecar:
                sidecar.wait_for("^listening ")
                (shown,) = fumehood("plugin", "list", "--json", folder=tmp_path).json["plugins"]
                return shown["state"], [each["code"] for each in shown["reasons"]]

        assert served() == ("refused", ["not_pinned"])
        assert not (marks / "mark").exists()
        assert fumehood("plugin", "add", str(picky.plugin), "--yes", folder=tmp_path).status == 0
        assert starts() == 1
        assert served()[0] == "serving"
        assert starts() == 1, "what is pinned is known"
        (picky.plugin / "more.py").write_text("")
        for options in ((), ("--locked",)):
            assert served(*options) == ("refused", ["digest_changed"])
            assert starts() == 1
        manifest = picky.plugin / "plugin.toml"
        manifest.write_text(manifest.read_text().replace('"picky"\n', '"other"\n', 1))
        assert served() == ("refused", ["not_pinned"])
        assert starts() == 1, "another name is no way to be started"
        manifest.write_text(manifest.read_text().replace('"other"\n', '"picky"\n', 1))
        assert fumehood("plugin", "upgrade", "picky", "--yes", folder=tmp_path).status == 0
        assert starts() == 2, "control: it tells"
        assert served()[0] == "serving"


async def test_it_is_refused_for_other_kinds_and_for_servers_over_http(tmp_path: Path) -> None:
    small = write_plugin(tmp_path / "small", "small", CODE)
    with remote_server("legacy") as port:
        far = remote_plugin(tmp_path / "far", f"http://127.0.0.1:{port}/mcp")
        hosts = f'prefix = "far_"\nmax_side_effects = "external"\nhosts = ["127.0.0.1:{port}"]\n'
        hosts += 'allow_private = ["127.0.0.1"]\n'
        with running_sidecar([(small, ""), (far, hosts)]) as sidecar:
            async with sidecar.channel() as channel:
                assert {"echo", "far_echo"} <= set(await Caller(channel).tools()), "control"
        with running_sidecar([(small, LIST), (far, hosts + LIST)]) as sidecar:
            refused = {
                name: json.dumps(sidecar.logged(event="plugin_refused", plugin=name)) for name in ("small", "far")
            }
    assert "`list_with_grants` in [[plugin]] is for plugins of kind" in refused["small"]
    assert "`list_with_grants` in [[plugin]] is not for a server with `url`" in refused["far"]
