"""`fumehood doctor` says which engines there are and whether their keys can be read, and asks none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.command import fumehood
from tests.orchestration.scripted import ScriptedModel

KEY = "sk-not-to-be-seen"


def engines_of(folder: Path, text: str) -> tuple[dict[str, Any], str]:
    (folder / "fumehood.toml").write_text(text)
    done = fumehood("doctor", "--json", folder=folder)
    return {each["feature"]: each for each in done.json["findings"] if "engine " in each["feature"]}, done.stdout


def test_doctor_tells_of_engines_and_their_keys_without_asking_them(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o600)
    secrets = '[secrets.there]\nfile = "key"\n[secrets.gone]\nfile = "no-key"\n[secrets.unset]\nenv = "NO_SUCH_KEY"\n'
    tables = [scripted_model.engine_table("plain")]
    tables += [scripted_model.engine_table(name, more=f'secret = "{name}"') for name in ("there", "gone", "unset")]
    found, shown = engines_of(tmp_path, "\n".join([*tables, secrets]))
    assert {name: each["status"] for name, each in found.items()} == {
        "engine plain": "ok",
        "engine there": "ok",
        "engine gone": "missing",
        "engine unset": "note",
    }
    assert f"gpt-4o at {scripted_model.base_url}, the default; asked without a key" in found["engine plain"]["detail"]
    assert found["engine gone"]["remedy"]
    assert KEY not in shown
    assert scripted_model.requests() == []


def test_without_engines_doctor_says_nothing_of_them(tmp_path: Path) -> None:
    assert engines_of(tmp_path, "")[0] == {}
