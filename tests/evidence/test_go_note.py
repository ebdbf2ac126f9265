"""What a sidecar signs is read by `golang.org/x/mod/sumdb/note`: by the example for monitors in Go."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from fumehood_evidence.checkpoint import Checkpoint
from fumehood_evidence.note import Signer, opened
from fumehood_server.journal.keys import public_keys
from fumehood_server.journal.sqlite import SqliteReader

from tests.examples.test_clients import BUILD_TIMEOUT_S, EXAMPLES, go_environment, needs, run
from tests.sidecar import running_sidecar


@needs("go")
@pytest.mark.timeout(BUILD_TIMEOUT_S + 60)
def test_go_reads_the_checkpoint_of_a_sidecar_and_refuses_it_with_a_byte_changed(tmp_path: Path) -> None:
    program = tmp_path / "checkpoint"
    go = ["go", "build", "-o", str(program), "."]
    built = run(go, cwd=EXAMPLES / "evidence" / "go", env=go_environment(), timeout_s=BUILD_TIMEOUT_S)
    assert built.returncode == 0, built.stderr
    with running_sidecar(at=tmp_path) as sidecar:
        sidecar.signal()
        sidecar.wait()
    (key,) = public_keys(tmp_path / ".fumehood")
    with contextlib.closing(SqliteReader(tmp_path / ".fumehood" / "journal.db")) as reader:
        note = reader.checkpoint(0)
    assert note is not None

    def read(data: bytes, by: object = key) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([program, str(by)], input=data, capture_output=True, check=False)

    ours = Checkpoint.parse(opened(note, [key]).text)
    told = read(note.encode())
    assert (told.returncode, told.stderr) == (0, b"")
    assert told.stdout.decode().startswith(f"log {ours.origin}, size {ours.size}, root ")
    assert told.stdout.decode().endswith(f"signed by {key.name}\n")
    for at in range(0, len(note), 7):
        changed = bytearray(note.encode())
        changed[at] ^= 0x01
        assert read(bytes(changed)).returncode == 1, at
    assert read(note.encode(), Signer.generate(key.name).verifier).returncode == 1
