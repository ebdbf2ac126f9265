"""A bundle proves its call or run to whoever has the public key, and every change to it is noticed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fumehood_evidence.bundle import Bundle, parse
from fumehood_evidence.errors import EvidenceError
from fumehood_evidence.note import Signer
from fumehood_evidence.page import read, render
from fumehood_evidence.verification import verify
from fumehood_server.journal.evidence import NoEvidenceError, make_bundle
from fumehood_server.journal.sqlite import SqliteReader

from .bench import entries, written
from .test_verify import STRIDE

SIGNER = Signer.generate("test/journal")
KEYS = [SIGNER.verifier]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> SqliteReader:
    path = tmp_path_factory.mktemp("journal") / "journal.db"
    batches = [*entries(300)]
    written(path, [batches[:400], batches[400:]], SIGNER)
    return SqliteReader(path)


@pytest.fixture(scope="module")
def bundle(reader: SqliteReader) -> Bundle:
    return make_bundle(reader, SIGNER, call_id="call-00000123")


def test_a_call_is_proven_from_start_to_outcome(bundle: Bundle) -> None:
    found = verify(read(render(bundle)), KEYS)
    assert (found.size, found.events, found.payloads, found.documents) == (901, 3, 2, 1)
    assert [(call.call_id, call.tool, call.outcome) for call in found.calls] == [("call-00000123", "write_file", "OK")]
    assert any("no witness" in each for each in found.not_proven)


def test_a_run_is_proven_call_by_call(reader: SqliteReader) -> None:
    found = verify(make_bundle(reader, SIGNER, run_id="run-12"), KEYS)
    assert [call.call_id for call in found.calls] == [f"call-{number:08}" for number in range(120, 130)]
    assert any("no other calls" in each for each in found.not_proven)


def test_growth_since_an_earlier_checkpoint_is_proven(reader: SqliteReader) -> None:
    earlier = next(note for size, note in reader.checkpoints() if size == 400)
    assert verify(make_bundle(reader, SIGNER, call_id="call-00000007", earlier=[earlier]), KEYS).earlier == 1
    forked = Signer.generate("test/journal")
    with pytest.raises(EvidenceError, match="none of the keys"):
        verify(make_bundle(reader, SIGNER, call_id="call-00000007", earlier=[earlier]), [forked.verifier])


def resealed(bundle: Bundle, **changes: object) -> Bundle:
    """By an operator who has the key, and would show less than the log has."""
    return replace(bundle, **changes).sealed(SIGNER)  # type: ignore[arg-type] # fields by name


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda it: replace(it, events=it.events[:-1]), "the seal is over other data"),
        (lambda it: resealed(it, events=it.events[1:]), "lacks its event number 1"),
        (lambda it: resealed(it, events=[it.events[0], it.events[2]]), "lacks its event number 2"),
        (lambda it: resealed(it, events=it.events[::-1]), "not in the order"),
        (lambda it: resealed(it, events=[*it.events, it.events[-1]]), "not in the order"),
        (lambda it: resealed(it, events=[replace(it.events[0], body=b"{}"), *it.events[1:]]), "is not what the log"),
        (lambda it: resealed(it, events=[replace(it.events[0], position=1), *it.events[1:]]), "is not what the log"),
        (lambda it: resealed(it, events=[replace(it.events[0], proof=()), *it.events[1:]]), "too short"),
        (lambda it: resealed(it, payloads={it.events[0].position: {0: b"x"}}), "are not those that it names"),
        (lambda it: resealed(it, payloads={**it.payloads, 7: {0: b"x"}}), "that no event names"),
        (lambda it: resealed(it, documents={"0" * 64: b"x"}), "not the one that the events name"),
        (lambda it: resealed(it, subject={"call_id": "call-00000124"}), "is not of call_id"),
        (lambda it: resealed(it, checkpoint=it.checkpoint.replace("901", "900")), "signature by"),
        (lambda it: replace(it, seal=it.checkpoint), "the seal is over other data"),
    ],
)
def test_what_was_dropped_added_moved_or_changed_is_named(
    bundle: Bundle, change: Callable[[Bundle], Bundle], problem: str
) -> None:
    with pytest.raises(EvidenceError, match=problem):
        verify(change(bundle), KEYS)


def test_what_was_not_kept_is_said(bundle: Bundle) -> None:
    found = verify(resealed(bundle, payloads={}), KEYS)
    assert found.payloads == 0
    assert any("2 arguments or results" in each for each in found.not_proven)


def test_a_document_that_is_left_out_is_said(bundle: Bundle) -> None:
    receipt = next(iter(bundle.documents))
    assert not any(receipt in each for each in verify(bundle, KEYS).not_proven)
    found = verify(resealed(bundle, documents={}), KEYS)
    assert any(f"receipt {receipt}" in each for each in found.not_proven)


def test_after_a_rotation_both_keys_prove_what_the_older_one_signed(reader: SqliteReader) -> None:
    rotated = Signer.generate("test/journal")
    made = make_bundle(reader, rotated, call_id="call-00000123")
    assert verify(made, [SIGNER.verifier, rotated.verifier]).events == 3
    for one in (SIGNER, rotated):
        with pytest.raises(EvidenceError, match="none of the keys"):
            verify(made, [one.verifier])


def test_every_flipped_byte_of_the_file_is_noticed(bundle: Bundle) -> None:
    whole = render(bundle).encode()
    for at in range(0, len(whole), max(1, STRIDE // 10)):
        data = bytearray(whole)
        data[at] ^= 0x01
        with pytest.raises((EvidenceError, UnicodeDecodeError)):
            verify(read(data.decode()), KEYS)


def test_the_page_shows_nothing_that_steers_its_reader(bundle: Bundle) -> None:
    position = bundle.events[0].position
    hostile = resealed(bundle, payloads={position: {0: "<script>alert(1)</script>\u202e\x1b[2J".encode()}})
    page = render(hostile)
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert read(page) == parse(hostile.to_json())


def test_what_nothing_was_signed_about_has_no_evidence(reader: SqliteReader) -> None:
    with pytest.raises(NoEvidenceError, match="no signed event"):
        make_bundle(reader, SIGNER, call_id="call-99999999")


def test_the_verifier_needs_nothing_else_of_ours(bundle: Bundle, tmp_path: Path) -> None:
    file, key = tmp_path / "call.html", tmp_path / "journal.pub"
    file.write_text(render(bundle))
    key.write_text(f"{SIGNER.verifier}\n")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = (
            "import sys, fumehood_evidence.__main__ as main\n"
            "status = main.main(sys.argv[1:])\n"
            "ours = {name.split('.')[0] for name in sys.modules if name.startswith('fumehood')}\n"
            "sys.exit(9 if ours != {'fumehood_evidence'} else status)\n"
        )
        command = [sys.executable, "-c", code, "verify", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    proven = run(str(file), "--key", str(key))
    assert proven.returncode == 0, proven.stdout + proven.stderr
    assert "call call-00000123 of write_file: all its 3 events, outcome OK" in proven.stdout
    told = json.loads(run(str(file), "--key", str(SIGNER.verifier), "--json").stdout)
    assert told["proven"] is True
    file.write_text(render(bundle).replace("write_file", "read_files", 1))
    refused = run(str(file), "--key", str(key))
    assert (refused.returncode, refused.stdout.strip()) == (
        1,
        "NOT PROVEN: the page does not show its own data: it was changed",
    )
    with contextlib.suppress(FileNotFoundError):
        file.unlink()
    assert "can't read" in run(str(file), "--key", str(key)).stdout
