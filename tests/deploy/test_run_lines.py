"""What docker.md says that doctor finds by each run line is what `make test-containers` holds its answer against."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.kernels import containers
from tools.kernels.containers import Line, lines
from tools.kernels.places import KernelsError


def _found(backend: str, weaker: tuple[str, ...]) -> list[dict[str, str]]:
    """What doctor reports where this backend holds, with these layers weaker and one in force."""
    area = "sandbox" if backend == "namespaces" else "landlock"
    layers = {"seccomp": "in force", **dict.fromkeys(weaker, "weaker")}
    held = [{"area": area, "layer": layer, "status": status, "detail": ""} for layer, status in layers.items()]
    return [*held, {"area": "sandbox", "layer": "backend", "status": "in force", "detail": ""}]


def test_each_run_line_has_its_row() -> None:
    assert [(line.name, line.backend) for line in lines()] == [
        ("Defaults", "landlock"),
        ("Defaults, ordinary user", "landlock"),
        ("Namespaces", "namespaces"),
        ("CAP_SYS_ADMIN", "namespaces"),
    ]


@pytest.mark.parametrize("line", list(lines()), ids=lambda line: line.name)
def test_another_answer_of_doctors_than_the_pages_is_told(line: Line) -> None:
    assert list(line.against(_found(line.backend, line.weaker))) == []
    assert "weaker, not" in "".join(line.against(_found(line.backend, (*line.weaker, "seccomp"))))
    assert "weaker, not" in "".join(line.against(_found(line.backend, line.weaker[1:])))
    other = {"landlock": "namespaces", "namespaces": "landlock"}[line.backend]
    assert f"doctor finds {other}, not {line.backend}" in "".join(line.against(_found(other, line.weaker)))


def test_a_run_line_without_a_row_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = containers.PAGE.read_text(encoding="utf-8").replace("| [Namespaces](#namespaces) |", "| Namespaces |")
    (tmp_path / "docker.md").write_text(page, encoding="utf-8")
    monkeypatch.setattr(containers, "PAGE", tmp_path / "docker.md")
    with pytest.raises(KernelsError, match="'Namespaces'"):
        list(lines())


@pytest.mark.parametrize("source", containers.SOURCES)
def test_image_is_made_anew_when_anything_that_it_holds_changes(tmp_path: Path, source: str) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)  # noqa: S607
    file = tmp_path / source / "any.toml"
    file.parent.mkdir(parents=True)
    file.write_text("a")
    before = containers.recipe_digest(tmp_path)
    (tmp_path / "README.md").write_text("no part of it")
    assert containers.recipe_digest(tmp_path) == before
    file.write_text("b")
    assert containers.recipe_digest(tmp_path) != before
