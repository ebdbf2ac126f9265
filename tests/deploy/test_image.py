"""The Dockerfile, as far as it can be held without an engine: what it names exists, what it runs can be run."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from fumehood_server.cli.root import fumehood as root

from tools.kernels import containers

ROOT = Path(__file__).resolve().parents[2]
_DEPLOY = ROOT / "docs" / "deploy"
_DISTRIBUTIONS = ("evidence", "protos", "plugin_sdk", "sandbox", "server")


@dataclass(frozen=True)
class Instruction:
    """One of the Dockerfile's, with its continued lines joined, and the stage that it belongs to."""

    stage: int
    word: str
    rest: str

    @property
    def exec_form(self) -> list[str]:
        found = json.loads(self.rest[self.rest.index("[") :])
        assert isinstance(found, list)
        return [str(each) for each in found]


def _instructions() -> list[Instruction]:
    lines = (_DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#")).replace("\\\n", " ")
    found: list[Instruction] = []
    stage = -1
    for line in filter(str.strip, text.splitlines()):
        word, rest = line.split(maxsplit=1)
        stage += word == "FROM"
        found.append(Instruction(stage, word, " ".join(rest.split())))
    return found


def _last(word: str) -> Instruction:
    return [each for each in _instructions() if each.word == word][-1]


def _environment() -> dict[str, str]:
    return dict(each.split("=", 1) for each in shlex.split(_last("ENV").rest))


def _copied() -> list[tuple[int, str, str]]:
    """Stage, source and target of what comes from the checkout."""
    copies = [[*shlex.split(each.rest), str(each.stage)] for each in _instructions() if each.word == "COPY"]
    return [(int(stage), source, target) for source, target, stage in (each for each in copies if len(each) == 3)]


def _commands(stage: int) -> list[list[str]]:
    return [
        shlex.split(command)
        for each in _instructions()
        if each.word == "RUN" and each.stage == stage
        for command in each.rest.split("&&")
    ]


def _pip(stage: int, action: str) -> tuple[list[str], dict[str, str]]:
    """What the one such call of pip takes: its targets, and its options with their values."""
    (line,) = [each for each in _commands(stage) if each[0].endswith("/bin/pip") and each[1] == action]
    targets, options = [], {}
    words = iter(line[2:])
    for word in words:
        if word in ("--wheel-dir", "--constraint"):
            options[word] = next(words)
        elif not word.startswith("-"):
            targets.append(word)
    return targets, options


def _left_out(path: str) -> bool:
    """By Dockerfile.dockerignore, whose last line that fits decides. A line fits what lies beneath as well."""
    out = False
    for line in (_DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!")
        if not line or line.startswith("#"):
            continue
        parents = [path, *(str(each) for each in Path(path).parents)]
        if any(fnmatch.fnmatch(each, pattern) or fnmatch.fnmatch(f"/{each}", pattern) for each in parents):
            out = not line.startswith("!")
    return out


@pytest.mark.parametrize("source", [source for _, source, _ in _copied()])
def test_what_is_copied_exists_and_reaches_the_build(source: str) -> None:
    assert (ROOT / source).exists()
    assert not _left_out(source)


def test_nothing_else_of_a_checkout_reaches_the_build() -> None:
    for path in (".venv/bin/python", ".git/config", "server/fumehood_server/__pycache__/app.cpython-311.pyc", "docs"):
        assert _left_out(path), path


def test_all_five_distributions_are_built_where_they_were_copied_to() -> None:
    workdir = next(each.rest for each in _instructions() if each.word == "WORKDIR")
    copied = {f"{workdir}/{Path(target)}": source for stage, source, target in _copied() if stage == 0}
    targets, options = _pip(0, "wheel")
    sources = [copied[f"{workdir}/{Path(target)}"] for target in targets]
    assert sorted(sources) == sorted(_DISTRIBUTIONS)
    for source in sources:
        project = tomllib.loads((ROOT / source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["name"].startswith("fumehood-")
    (wheels,) = [each.rest.split()[1:] for each in _instructions() if each.word == "COPY" and "--from=" in each.rest]
    assert wheels[0] == options["--wheel-dir"]
    installed, constrained = _pip(1, "install")
    assert installed == [f"{wheels[1]}/*.whl"]
    assert constrained["--constraint"] in {target for stage, _, target in _copied() if stage == 1}


def test_stage_that_is_copied_from_has_that_name() -> None:
    names = re.findall(r"^FROM \S+ AS (\S+)$", (_DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert names == re.findall(r"--from=(\S+)", (_DEPLOY / "Dockerfile").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "command",
    [
        _last("ENTRYPOINT").exec_form + _last("CMD").exec_form,
        _last("HEALTHCHECK").exec_form,
    ],
    ids=["served", "asked for its health"],
)
def test_commands_are_read_by_the_program_itself(command: list[str]) -> None:
    program, name, *arguments = command
    assert program == "fumehood"
    with click.Context(root) as context:
        subcommand = root.get_command(context, name)
        assert subcommand is not None
        subcommand.make_context(name, list(arguments), parent=context)
        with pytest.raises(click.NoSuchOption):
            subcommand.make_context(name, [*arguments, "--no-such-option"], parent=context)


def test_it_is_an_ordinary_user_who_owns_what_is_written_to() -> None:
    user, group = _last("USER").rest.split(":")
    assert int(user) > 0
    assert int(group) > 0
    (line,) = [each for each in _commands(1) if each[0] == "install"]
    assert line[line.index("--owner") + 1] == user
    assert line[line.index("--group") + 1] == group
    folders = {word for word in line if word.startswith("/")}
    page = (_DEPLOY / "docker.md").read_text(encoding="utf-8")
    listen, state = re.findall(r'`listen = \["unix:(\S+?)"\]` and `state_dir = "(\S+?)"`', page)[0]
    assert folders == {str(Path(listen).parent), state}
    assert _environment()["FUMEHOOD_ADDRESS"] == f"unix:{listen}"
    # Nobody but the owner may put a socket in the place of the sidecar's, which it makes sure of at its start.
    assert int(line[line.index("--mode") + 1], 8) & 0o022 == 0


def test_image_that_run_lines_are_tried_on_is_as_this_file_has_it() -> None:
    (installed,) = [each for each in _commands(1) if each[:2] == ["apt-get", "install"]]
    assert sorted(each for each in installed[2:] if not each.startswith("-")) == sorted(containers.PACKAGES)
    settings = {f"ENV {name}={value}" for name, value in _environment().items()}
    settings |= {
        f"WORKDIR={_last('WORKDIR').rest}",
        f"USER={_last('USER').rest}",
        f"ENTRYPOINT {_last('ENTRYPOINT').rest}",
    }
    assert set(containers.SETTINGS) == settings
    sources = {source for _, source, _ in _copied()}
    assert {source.removesuffix("/runtime.txt") for source in sources} == set(containers.SOURCES)


def test_program_is_found_where_it_was_installed() -> None:
    (line,) = [each for each in _commands(1) if "venv" in each and each[0] == "python3"]
    assert f"{line[-1]}/bin" in _environment()["PATH"].split(":")


def test_page_builds_this_file_from_the_root_and_runs_what_it_built() -> None:
    page = (_DEPLOY / "docker.md").read_text(encoding="utf-8")
    (build,) = [shlex.split(line) for line in page.splitlines() if line.startswith("docker build")]
    assert (ROOT / build[build.index("--file") + 1]) == _DEPLOY / "Dockerfile"
    assert build[-1] == "."
    tag = build[build.index("--tag") + 1]
    runs = [shlex.split(each) for each in re.findall(r"```sh\n(docker run .*?)```", page, re.DOTALL)]
    assert runs
    user = _last("USER").rest
    for run in runs:
        assert run[run.index(tag) + 1 :] == _last("CMD").exec_form
        assert run[run.index("--user") + 1] in {user, "0:0"}
