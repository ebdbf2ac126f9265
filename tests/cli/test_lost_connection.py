"""`fumehood call --stream` over a network that breaks: it goes on where it was, and the call runs once."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests import preloaded
from tests.broken_network import Relay, relay
from tests.cli.command import COMMAND, TIMEOUT_S, environment
from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = """
import os
from pathlib import Path
from fumehood_sdk import Context, Plugin

plugin = Plugin("talker", version="1.0.0")


@plugin.tool(side_effects="write", timeout_s=120)
def talk(folder: str, ctx: Context) -> str:
    \"\"\"Says one, two and three, and goes on as files come.\"\"\"
    with (Path(folder) / "runs").open("a") as file:
        file.write("run\\n")
    for number in (1, 2, 3):
        ctx.update(f"first {number}")
    while not os.path.exists(f"{folder}/more"):
        ctx.sleep(0.01)
    for number in (4, 5, 6):
        ctx.update(f"then {number}")
    Path(folder, "said").touch()
    while not os.path.exists(f"{folder}/end"):
        ctx.sleep(0.01)
    return "done"
"""
ALLOWED = 'max_side_effects = "write"\nwrite = ["{folder}"]\n[plugin.tools.talk]\npermission = "allow"\n'


class Place:
    """A folder that the tool and the test talk by."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.notes.chmod(0o777)
        self._plugin = write_plugin(folder / "talker", "talker", CODE)

    def sidecar(self, more: str = "") -> AbstractContextManager[Sidecar]:
        return running_sidecar([(self._plugin, ALLOWED.format(folder=self.notes))], more=more, at=self.folder)

    def let(self, name: str) -> None:
        (self.notes / name).touch()

    def until(self, name: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not (self.notes / name).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @property
    def runs(self) -> int:
        return len((self.notes / "runs").read_text().splitlines())


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        yield Place(Path(name))


class Streamed:
    """`fumehood call talk --stream --json`, read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        shape = json.loads(self.process.stdout.readline())
        assert isinstance(shape, dict)
        return shape

    def lines(self, number: int) -> list[Any]:
        """Of updates the sequence, of others the name."""
        found = [self.line() for _ in range(number)]
        return [each["sequence"] if each["event"] == "update" else each["event"] for each in found]

    def rest(self) -> tuple[list[dict[str, Any]], str]:
        stdout, stderr = self.process.communicate(timeout=TIMEOUT_S)
        return [json.loads(line) for line in stdout.splitlines()], stderr


@contextlib.contextmanager
def streamed(place: Place, network: Relay) -> Iterator[Streamed]:
    arguments = ["call", "talk", "--args", json.dumps({"folder": str(place.notes)}), "--stream", "--json"]
    with preloaded.Popen(
        [*COMMAND, *arguments, "--call-id", "talk-1"],
        env=environment(network.address),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            made = Streamed(process)
            assert made.lines(4) == ["started", 1, 2, 3]
            yield made
        finally:
            if process.poll() is None:
                process.kill()


def ended_with(sidecar: Sidecar) -> str:
    """The code of the call's end in the log, once it is there."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        codes = [
            str(line.get("code")) for line in sidecar.log() if line["event"] in {"execute_end", "execute_cancelled"}
        ]
        if codes:
            return codes[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_stream_goes_on_after_the_update_that_it_had(place: Place) -> None:
    with place.sidecar() as sidecar, relay(sidecar.target) as network, streamed(place, network) as call:
        network.cut()
        place.let("more")
        place.until("said")
        network.mend()
        assert call.line() == {"event": "rejoined", "call_id": "talk-1", "missed_updates": 0}
        assert call.lines(3) == [4, 5, 6]
        network.cut()
        network.mend()
        place.let("end")
        lines, stderr = call.rest()
        assert [each["event"] for each in lines] == ["rejoined", "finished"]
        assert [each["text"] for each in lines[-1]["result"]["content"]] == ["done"]
        assert stderr.count("The connection was lost") == 2
    assert (call.process.returncode, place.runs) == (0, 1)


@pytest.mark.slow("waits for keepalive, 10 to 25 s")
def test_a_network_that_falls_silent_is_noticed(place: Place) -> None:
    with place.sidecar() as sidecar, relay(sidecar.target) as network, streamed(place, network) as call:
        network.silence()
        place.let("more")
        place.let("end")
        lines, _ = call.rest()  # after 10 to 25 s
    assert [each.get("sequence", each["event"]) for each in lines] in (
        ["rejoined", 4, 5, 6, "finished"],  # type: ignore[comparison-overlap] # of both types
        ["rejoined", "finished"],  # it had ended by then
    )
    assert (call.process.returncode, place.runs) == (0, 1)


def test_a_sidecar_that_was_killed_says_what_became_of_the_call(place: Place) -> None:
    with contextlib.ExitStack() as stack:
        sidecar = stack.enter_context(place.sidecar())
        network = stack.enter_context(relay(sidecar.target))
        call = stack.enter_context(streamed(place, network))
        sidecar.signal(signal.SIGKILL)
        sidecar.wait()
        stack.enter_context(place.sidecar())
        lines, _ = call.rest()
    assert [each["event"] for each in lines] == ["rejoined", "finished"]
    assert lines[-1]["result"]["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
    assert (call.process.returncode, place.runs) == (1, 1)


def test_a_sidecar_that_records_nothing_is_not_sent_the_call_again(place: Place) -> None:
    off = '[journal]\nstore = "off"\n'
    with contextlib.ExitStack() as stack:
        sidecar = stack.enter_context(place.sidecar(off))
        network = stack.enter_context(relay(sidecar.target))
        call = stack.enter_context(streamed(place, network))
        sidecar.signal(signal.SIGKILL)
        sidecar.wait()
        stack.enter_context(place.sidecar(off))
        lines, stderr = call.rest()
    error = json.loads(stderr.splitlines()[-1])["error"]
    assert (lines, error["code"], error["details"]["reason"]) == ([], "STREAM_BROKEN", "JOURNAL_OFF")
    assert (call.process.returncode, place.runs) == (3, 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_leaves_after_a_lost_connection_takes_the_call_along(place: Place, number: signal.Signals) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the tests run under nohup: what they start goes on without a terminal")
    with place.sidecar() as sidecar, relay(sidecar.target) as network, streamed(place, network) as call:
        network.cut()
        network.mend()
        assert call.line()["event"] == "rejoined"
        call.process.send_signal(number)
        _, stderr = call.rest()
        assert "cancelled: the call talk-1 of talk was told to stop" in stderr
        assert call.process.returncode == 128 + number
        assert ended_with(sidecar) == "CANCELLED_SIGNAL"


def test_a_reader_that_leaves_takes_the_call_along(place: Place) -> None:
    with place.sidecar() as sidecar, relay(sidecar.target) as network, streamed(place, network) as call:
        assert call.process.stdout is not None
        call.process.stdout.close()
        place.let("more")
        assert ended_with(sidecar) == "CANCELLED_SIGNAL"
