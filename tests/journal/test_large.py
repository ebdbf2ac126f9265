"""Reading a large journal takes no more memory than reading a small one. `million_events` does so with a million."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest
from fumehood_server.config.database import Database
from fumehood_server.journal import JOURNAL_NAME
from fumehood_server.journal.keys import load_or_make_key
from fumehood_server.journal.place import place_of

from tests.cli.command import COMMAND, environment

from .bench import entries, written

MIB = 1024 * 1024
MARGIN_BYTES = 40 * MIB
"""For pages of events, SQLite's own cache and what pyarrow's allocator keeps, which is all there from 40,000 on."""

COMMANDS = (
    ("verify",),
    ("export", "--format", "parquet"),
)
MORE_COMMANDS = (
    ("list", "--caller", "nobody"),
    ("list", "-n", "50"),
    ("list", "--outcome", "TOOL_TIMEOUT", "--json"),
    ("tail", "-n", "100", "--type", "sidecar_started"),
    ("show", "run-77"),
    ("export",),
)


@contextmanager
def journal_of(events: int, url: str = "") -> Iterator[Path]:
    """The configuration of a journal of about so many events, in a file or an empty database."""
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        folder = Path(name)
        (folder / "fumehood.toml").write_text(f'[journal]\nstore = "{url}"\n' if url else "")
        state = folder / ".fumehood"
        state.mkdir(mode=0o700)
        made = entries(events // 3)
        batches = iter(lambda: [*islice(made, 4096)], [])
        place = place_of(state, Database(url) if url else None)
        for batch in batches:
            written(place, [batch])
        written(place, [[]], load_or_make_key(state))
        yield folder / "fumehood.toml"


def peak_bytes(config: Path, *arguments: str) -> int:
    """The most memory that a command had resident (wait4(2))."""
    with (config.parent / "out").open("wb") as out:
        process = subprocess.Popen(
            [*COMMAND, "journal", *arguments, "--config", str(config)], stdout=out, env=environment()
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return usage.ru_maxrss * 1024


def grown(large: Path, small: Path, commands: Sequence[tuple[str, ...]]) -> dict[str, int]:
    """By how many MiB a command takes more of the large journal than of the small one, where that is too much."""
    more = {" ".join(each): peak_bytes(large, *each) - peak_bytes(small, *each) for each in commands}
    return {name: size // MIB for name, size in more.items() if size > MARGIN_BYTES}


@pytest.fixture(scope="module")
def small() -> Iterator[Path]:
    with journal_of(3_000) as config:
        yield config


@pytest.mark.slow("writes and reads a large journal")
def test_every_command_reads_a_large_journal_in_the_memory_of_a_small_one(small: Path) -> None:
    with journal_of(54_000) as large:
        assert large.with_name(".fumehood").joinpath(JOURNAL_NAME).stat().st_size > MARGIN_BYTES
        assert grown(large, small, COMMANDS) == {}
