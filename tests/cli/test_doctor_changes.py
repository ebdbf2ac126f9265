"""What `fumehood doctor` says a reload would change, against a sidecar that serves."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import fumehood
from tests.cli.serving import CODE, running
from tests.cli.test_doctor import findings
from tests.sidecar import write_plugin


def test_doctor_sees_every_setting_that_a_reload_would_take_up_or_refuse(tmp_path: Path) -> None:
    write_plugin(tmp_path / "small", "small", CODE)
    (tmp_path / "secret").write_text("a secret of some length")
    (tmp_path / "secret").chmod(0o600)
    entry = '[[plugin]]\npath = "small"\n'
    known = '[secrets.KEY]\nfile = "secret"\n'
    (tmp_path / "fumehood.toml").write_text(f"{known}{entry}")
    with running("serve", "--log-format", "json", folder=tmp_path) as serving:
        serving.wait_for("^listening ")
        _, found = findings(tmp_path, "sidecar")
        assert list(found) == ["sidecar"], "control: nothing differs"
        (tmp_path / "fumehood.toml").write_text(
            "[server]\nstart_timeout_s = 50\n"
            "[limits.default]\nprocesses = 7\n"
            '[[policy.rule]]\nname = "none"\npermission = "deny"\ntools = ["nothing"]\n'
            f'[secrets.KEY]\nenv = "HOME"\n{entry}max_workers = 3\nprefix = "a_"\n'
            '[plugin.tools.small]\npermission = "require_approval"\n'
        )
        done = fumehood("doctor", "--json", folder=tmp_path)
        changes = {each["detail"]: each["remedy"] for each in done.json["findings"] if each["feature"] == "change"}
        assert list(changes) == [
            "limits.default.processes: not as it is served",
            "rules: not as it is served",
            "secrets.KEY: not as it is served",
            "server.start_timeout_s: not as it is served",
            f"{tmp_path}/small: max_workers: not as it is served",
            f"{tmp_path}/small: prefix: not as it is served",
            f"{tmp_path}/small: tools.small: not as it is served",
        ]
        (rule,) = [each for each in done.json["findings"] if each["feature"] == "rule"]
        assert rule["detail"].startswith('[[policy.rule]] none: no tool is called "nothing"')
        (restart,) = {key for key, remedy in changes.items() if "reload` takes it up" not in remedy}
        assert restart.startswith("server.start_timeout_s")


def test_doctor_says_that_what_was_pinned_is_served_and_the_edits_are_not(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "small", "small", CODE)
    (tmp_path / "fumehood.toml").write_text('[[plugin]]\npath = "small"\n')
    with running("serve", "--log-format", "json", folder=tmp_path) as serving:
        serving.wait_for("^listening ")
        (folder / "more.py").write_text("")
        done = fumehood("doctor", "--json", folder=tmp_path)
        (found,) = [each for each in done.json["findings"] if each["feature"] == "plugin small"]
        assert (done.status, found["status"]) == (0, "note")
        assert "what was pinned is served" in found["detail"]
        assert "not served" not in found["detail"]
        assert "fumehood plugin add" in found["remedy"]
        (change,) = [each for each in done.json["findings"] if each["feature"] == "change"]
        assert "plugin reload" not in change["remedy"], "adding it is enough"
    assert fumehood("doctor", "--json", folder=tmp_path).status == 1, "no start would serve it"
