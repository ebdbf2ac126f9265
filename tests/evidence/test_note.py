"""Signed notes hold what their keys signed, and are read alike by Go's `golang.org/x/mod/sumdb/note`."""

from __future__ import annotations

import pytest
from fumehood_evidence import note
from fumehood_evidence.checkpoint import Checkpoint
from fumehood_evidence.errors import NoteError
from fumehood_evidence.merkle import EMPTY_ROOT
from fumehood_evidence.note import COSIGNATURE, Signer, Verifier

# From the documentation of golang.org/x/mod/sumdb/note: its example's keys and note.
GO_PRIVATE = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
GO_PUBLIC = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
TEXT = "first\nsecond\n"


@pytest.fixture
def signer() -> Signer:
    return Signer.generate("log.example/1")


def test_what_go_signed_is_read_here_and_the_other_way_round() -> None:
    verifier = Verifier.parse(GO_PUBLIC)
    opened = note.opened(GO_NOTE, [verifier])
    assert [each.name for each in opened.signatures] == ["PeterNeumann"]
    signer = Signer.parse(GO_PRIVATE)
    assert str(signer.verifier) == GO_PUBLIC
    assert signer.private_text() == GO_PRIVATE
    assert note.signed(opened.text, [signer]) == GO_NOTE


def test_every_changed_byte_of_a_note_is_noticed(signer: Signer) -> None:
    whole = note.signed(TEXT, [signer]).encode()
    assert note.opened(whole.decode(), [signer.verifier]).text == TEXT
    for at in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            with pytest.raises((NoteError, UnicodeDecodeError)):
                note.opened(changed.decode(), [signer.verifier])


def test_a_note_by_other_keys_is_refused_and_their_lines_are_passed_over(signer: Signer) -> None:
    other = Signer.generate("someone.example/else")
    with pytest.raises(NoteError, match="none of the keys"):
        note.opened(note.signed(TEXT, [other]), [signer.verifier])
    assert len(note.opened(note.signed(TEXT, [other, signer]), [signer.verifier]).signatures) == 1
    with pytest.raises(NoteError, match="none of the keys"):
        note.opened(note.signed(TEXT, [signer]), [])


def test_a_witness_says_when_it_cosigned(signer: Signer) -> None:
    witness = Signer(signer.verifier.name, signer._key, algorithm=COSIGNATURE)
    cosigned = note.signed(TEXT, [signer]) + witness.sign(TEXT, time=1_700_000_000)
    signatures = note.opened(cosigned, [signer.verifier, witness.verifier]).signatures
    assert [each.time for each in signatures] == [None, 1_700_000_000]
    later = cosigned.replace(witness.sign(TEXT, time=1_700_000_000), witness.sign("other\n", time=1_700_000_000))
    with pytest.raises(NoteError, match="is wrong"):
        note.opened(later, [witness.verifier])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no signatures"),
        ("text\n", "no signatures"),
        ("text\n\n", "0 signatures"),
        ("text\n\nno dash\n", "malformed"),
        ("text\n\n\u2014 name\n", "malformed"),
        ("text\n\n\u2014 name AAAA\n", "malformed"),
        ("text\n\n\u2014 name !!!!\n", "no base64"),
        ("te\x00xt\n\n\u2014 name AAAAAAAA\n", "control characters"),
        ("text\n\n" + "\u2014 name AAAAAAAA\n" * 101, "101 signatures"),
        ("x" * 70_000, "65,536 bytes"),
    ],
)
def test_malformed_notes_are_refused_by_name(text: str, message: str, signer: Signer) -> None:
    with pytest.raises(NoteError, match=message):
        note.opened(text, [signer.verifier])


@pytest.mark.parametrize(
    "text", ["", "a+b", GO_PUBLIC.replace("c74f20a3", "c74f20a4"), "n+00000000+AA==", GO_PUBLIC + "x"]
)
def test_keys_that_were_copied_wrongly_are_refused(text: str) -> None:
    with pytest.raises(NoteError):
        Verifier.parse(text)
    with pytest.raises(NoteError):
        Signer.parse(f"PRIVATE+KEY+{text}")


@pytest.mark.parametrize("name", ["", "two words", "a+b", "tab\there"])
def test_a_key_has_a_name_without_spaces_and_plus(name: str) -> None:
    with pytest.raises(NoteError, match="can't name a key"):
        Signer.generate(name)


def test_a_checkpoint_reads_as_it_was_written() -> None:
    checkpoint = Checkpoint("log.example/1", 0, EMPTY_ROOT, ("more",))
    assert Checkpoint.parse(str(checkpoint)) == checkpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\n1\n",
        "a\n01\n" + "A" * 43 + "=\n",
        "a\n-1\nAAAA\n",
        "a\n1\nAAAA\n",
        "a\n1\n" + "A" * 43 + "=",
        "a\n1\n!\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(NoteError):
        Checkpoint.parse(text)
