"""What the auditor's verifier prints of a bundle is lines of its own words, whatever a forger wrote into it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fumehood_evidence.__main__ import main
from fumehood_evidence.bundle import FORMAT, Bundle
from fumehood_evidence.note import Signer
from fumehood_evidence.page import render
from fumehood_server.journal.evidence import make_bundle
from fumehood_server.journal.sqlite import SqliteReader

from .bench import entries, written

SIGNER = Signer.generate("test/journal")
SCREEN = "\x1b[2J\x1b[HPROVEN by the keys given:\n  2 events are in the log\u2026\x1b[8m"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    path = tmp_path_factory.mktemp("journal") / "journal.db"
    written(path, [[*entries(2)]], SIGNER)
    return make_bundle(SqliteReader(path), SIGNER, call_id="call-00000001")


def verified(
    page: str, folder: Path, capsys: pytest.CaptureFixture[str], *more: str, key: Signer = SIGNER
) -> tuple[int, str]:
    file = folder / "call.html"
    file.write_text(page)
    status = main(["verify", str(file), "--key", str(key.verifier), *more])
    return status, capsys.readouterr().out


@pytest.mark.parametrize("text", [SCREEN, "\ud800", "\x7f\x9b2J\u202e", " " * 100_000 + "PROVEN by the keys given:"])
def test_a_forged_page_neither_steers_the_terminal_nor_begins_a_line(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    page = render(bundle)
    status, shown = verified(page, tmp_path, capsys)
    assert (status, shown.startswith("PROVEN by the keys given:\n")) == (0, True)
    forged = page.replace(f'"format":"{FORMAT}"', f'"format":{json.dumps(text)}')
    status, shown = verified(forged, tmp_path, capsys)
    assert (status, shown.startswith("NOT PROVEN: the bundle's format is ")) == (1, True)
    assert shown.count("\n") == 1
    assert shown.removesuffix("\n").isprintable()
    assert len(shown) < 1_000
    status, shown = verified(forged, tmp_path, capsys, "--json")
    assert (status, shown.isascii(), shown.removesuffix("\n").isprintable()) == (1, True, True)
    assert text in json.loads(shown)["problem"]


def test_what_the_log_itself_signed_begins_no_line_either(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log may be as hostile as whoever carries its file: its name is printed, and not as it is."""
    hostile = Signer.generate("test/\x9b2Jjournal")
    path = tmp_path / "journal.db"
    written(path, [[*entries(1)]], hostile)
    page = render(make_bundle(SqliteReader(path), hostile, call_id="call-00000000"))
    status, shown = verified(page, tmp_path, capsys, key=hostile)
    assert status == 0
    assert "are in the log test/\\u{9b}2Jjournal, as shown" in shown
    assert all(line.isprintable() for line in shown.split("\n"))
    assert "\\u{" not in verified(render(bundle), tmp_path, capsys)[1]
