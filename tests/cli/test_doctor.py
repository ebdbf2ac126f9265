"""`fumehood doctor`: what it finds of the machine, the configuration and the sidecar that serves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.command import fumehood
from tests.cli.serving import CODE, running
from tests.sidecar import write_plugin


def findings(folder: Path, area: str) -> tuple[int, dict[str, tuple[str, str, str]]]:
    done = fumehood("doctor", "--json", folder=folder)
    found = [each for each in done.json["findings"] if each["area"] == area]
    key = "feature" if area == "configuration" else "layer"
    return done.status, {each[key]: (each["status"], each["detail"], each["remedy"]) for each in found}


def test_doctor_finds_every_layer_here_and_exits_with_0(tmp_path: Path) -> None:
    done = fumehood("doctor", "--json", folder=tmp_path)
    assert (done.status, done.json["usable"]) == (0, True)
    findings = done.json["findings"]
    assert list(findings[0]) == ["area", "layer", "feature", "status", "detail", "remedy"]
    assert {finding["area"] for finding in findings} == {"machine", "sandbox", "landlock", "configuration", "sidecar"}
    layers = {finding["layer"] for finding in findings if finding["status"] == "in force"}
    assert {"namespaces", "seccomp", "landlock", "identity", "capabilities", "rlimits", "environment"} <= layers
    (speculation,) = [each for each in findings if each["feature"] == "speculation"]
    assert "store bypass" in speculation["detail"]
    assert (speculation["status"] == "ok") == (speculation["remedy"] == "")
    assert {"python", "kernel", "bubblewrap"} <= {finding["layer"] for finding in findings}
    assert "✓" in fumehood("doctor", folder=tmp_path).stdout


def test_doctor_exits_with_1_where_the_configuration_or_a_plugin_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text('[[plugin]]\npath = "absent"\n')
    done = fumehood("doctor", "--json", folder=tmp_path)
    assert (done.status, done.json["usable"]) == (1, False)
    missing = [finding for finding in done.json["findings"] if finding["status"] == "missing"]
    assert [(finding["feature"], bool(finding["remedy"])) for finding in missing] == [("plugin absent", True)]
    (tmp_path / "fumehood.toml").write_text("[sever]\n")
    assert "fumehood.toml:1: " in fumehood("doctor", folder=tmp_path).stdout


def test_doctor_shows_a_plugin_whose_pin_no_longer_fits(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "small", "small", CODE)

    def finding() -> tuple[int, str, str, str]:
        done = fumehood("doctor", "--json", folder=tmp_path)
        (found,) = [each for each in done.json["findings"] if each["feature"] == "plugin small"]
        return done.status, found["status"], found["detail"], found["remedy"]

    (tmp_path / "fumehood.toml").write_text('[[plugin]]\npath = "small"\n')
    status, mark, detail, remedy = finding()
    assert (status, mark) == (0, "note")
    assert "not pinned" in detail
    assert fumehood("plugin", "add", "small", "--yes", folder=tmp_path).status == 0
    assert finding()[:2] == (0, "ok")
    (folder / "more.py").write_text("")
    status, mark, detail, remedy = finding()
    assert (status, mark) == (1, "missing")
    assert "not the ones that were pinned" in detail
    assert "fumehood plugin add" in remedy


def test_doctor_tells_what_is_the_weakest_that_is_accepted(tmp_path: Path) -> None:
    for minimum in ("namespaces", "landlock"):
        (tmp_path / "fumehood.toml").write_text(f'[sandbox]\nminimum = "{minimum}"\n')
        done = fumehood("doctor", "--json", folder=tmp_path)
        (choice,) = [each for each in done.json["findings"] if each["layer"] == "backend"]
        assert choice["status"] == "in force"
        assert f'minimum = "{minimum}"' in choice["detail"]
    (tmp_path / "fumehood.toml").write_text('[sandbox]\nminimum = "none"\n')
    done = fumehood("doctor", "--json", folder=tmp_path)
    (file,) = [each for each in done.json["findings"] if each["area"] == "configuration"]
    assert (done.status, file["status"]) == (1, "missing")
    assert "namespaces" in file["detail"] + file["remedy"]


def test_doctor_tells_secrets_that_can_not_be_used(tmp_path: Path) -> None:
    for name, mode in (("good", 0o600), ("open", 0o644)):
        (tmp_path / name).write_text("a secret of some length")
        (tmp_path / name).chmod(mode)
    lines = [f'[secrets.{name.upper()}]\nfile = "{name}"' for name in ("good", "open", "absent")]
    (tmp_path / "fumehood.toml").write_text("\n".join([*lines, '[secrets.VARIABLE]\nenv = "NO_SUCH_VARIABLE"']))
    status, found = findings(tmp_path, "configuration")
    assert status == 1
    assert found["secret OPEN"][0] == "missing"
    assert "others may use" in found["secret OPEN"][1]
    assert found["secret ABSENT"][::2] == ("missing", "create the file, with mode 600")
    assert found["secret VARIABLE"][0] == "note"
    assert "secret GOOD" not in found
    (tmp_path / "fumehood.toml").write_text(lines[0])
    assert findings(tmp_path, "configuration")[0] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's plugins are other users than the sidecar")
def test_doctor_tells_granted_paths_that_the_plugins_user_can_not_use(tmp_path: Path) -> None:
    write_plugin(tmp_path / "small", "small", CODE)
    for name, mode in (("open", 0o644), ("mixed", 0o600)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
        (tmp_path / name / "file").chmod(mode)
        os.chown(tmp_path / name, 54320, 54320)
        os.chown(tmp_path / name / "file", 54321, 54321)

    def grant(*paths: str) -> dict[str, tuple[str, str, str]]:
        (tmp_path / "fumehood.toml").write_text(f'[[plugin]]\npath = "small"\nread = {json.dumps(paths)}\n')
        _, found = findings(tmp_path, "configuration")
        return {key: value for key, value in found.items() if key.startswith("grant")}

    assert grant("open") == {}
    (mixed,) = grant("open", "mixed").values()
    assert mixed[0] == "missing"
    assert f"{tmp_path}/mixed: user " in mixed[1]
    assert "1 of 1 entries can't be read, such as file" in mixed[1]
    assert "chmod" in mixed[2]


def test_doctor_tells_what_differs_from_what_is_served(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "small", "small", CODE)
    write_plugin(tmp_path / "other", "other", CODE.replace('"small"', '"other"'))
    for name in ("had", "given"):
        (tmp_path / name).mkdir()
    private = 'hosts = ["db.example:443"]\nallow_private = ["db.example=10.0.0.7"]\n'
    (tmp_path / "fumehood.toml").write_text(f'[[plugin]]\npath = "small"\nread = ["had"]\n{private}')
    with running("serve", "--log-format", "json", folder=tmp_path) as serving:
        serving.wait_for("^listening ")
        _, found = findings(tmp_path, "sidecar")
        assert list(found) == ["sidecar"], "control: nothing differs"
        (shown,) = fumehood("plugin", "list", "--json", folder=tmp_path).json["plugins"]
        assert (shown["grants"]["private_addresses"], shown["grants"]["hosts"]) == (
            ["db.example=10.0.0.7"],
            ["db.example:443"],
        )
        (folder / "small.py").write_text(CODE + "\n# changed\n")
        more = '[[plugin]]\npath = "small"\nmax_side_effects = "write"\nwrite = ["given"]\n[[plugin]]\npath = "other"\n'
        (tmp_path / "fumehood.toml").write_text(more)
        done = fumehood("doctor", "--json", folder=tmp_path)
        details = [each["detail"] for each in done.json["findings"] if each["feature"] == "change"]
        assert details == [
            f"{tmp_path}/other: not served yet",
            f"{tmp_path}/small: granted up to write, served up to read",
            f"{tmp_path}/small: host db.example:443: no longer granted, and served with it",
            f"{tmp_path}/small: its files are not those that are served",
            f"{tmp_path}/small: private address db.example=10.0.0.7: no longer granted, and served with it",
            f"{tmp_path}/small: reading {tmp_path}/had: no longer granted, and served with it",
            f"{tmp_path}/small: writing {tmp_path}/given: granted, and not served with it",
        ]
