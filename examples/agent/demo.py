"""`make demo-agent`: a small model answers from files, writes a note that a person approves, and outlives its sidecar.

The model, the sidecar and `fumehood run` are processes of their own, as an operator would start them; no network is
needed. Exits with 1 where it comes out otherwise than it says. Options are those of model_server.py.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build/agent"
NOTES = BUILD / "notes/notes.txt"
FUMEHOOD = str(Path(sys.executable).with_name("fumehood"))
COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ

SYSTEM = "You answer questions about a folder of files. Use the tools, one at a time."
QUESTION = (
    'What do the files say about the sash? Search for "sash", add a note that quotes what you found, and then answer.'
)
TOOLS = ("search_files", "add_note")

START_TIMEOUT_S = 120.0
"""Of a model of a gigabyte, from a disk that has not read it lately."""
STOP_TIMEOUT_S = 30.0
RUN_TIMEOUT_S = 900
"""Two processors that have other work as well read some tokens a second."""


class SurpriseError(Exception):
    """Something did not come out as the demo says it does."""


def paint(text: str, code: str) -> str:
    """Text in a colour, where that is shown."""
    return f"\x1b[{code}m{text}\x1b[0m" if COLOUR else text


def say(text: str = "") -> None:
    """One line, at once."""
    print(text, flush=True)


def headline(text: str) -> None:
    """What comes next."""
    say()
    say(paint(text, "1"))


@contextmanager
def model() -> Iterator[None]:
    """The model's server, once it answers."""
    log_path = BUILD / "model.log"
    pipe = subprocess.PIPE
    command = [sys.executable, str(HERE / "model_server.py"), *sys.argv[1:]]
    with (
        log_path.open("wb") as log,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True) as process,
    ):
        try:
            if not any(line.startswith("listening ") for line in process.stdout or ()):
                raise SurpriseError(f"the model's server ended; its log is {log_path}")
            yield
        finally:
            process.kill()


class Sidecar:
    """`fumehood serve` in this folder, which can be killed and started again."""

    def __init__(self) -> None:
        """Nothing is started yet."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return once it takes calls."""
        say(paint("$ cd examples/agent && fumehood serve", "36"))
        log_path = BUILD / "sidecar.log"
        with log_path.open("ab") as log:
            process = subprocess.Popen([FUMEHOOD, "serve"], cwd=HERE, stdin=subprocess.DEVNULL, stdout=-1, stderr=log)
        self._process = process
        if process.stdout is None or not process.stdout.readline().startswith(b"listening "):
            raise SurpriseError(f"the sidecar ended; its log is {log_path}")

    def kill(self) -> int:
        """SIGKILL, which nothing can prepare for. Its process id."""
        if self._process is None:
            raise SurpriseError("there is no sidecar to kill")
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        return self._process.pid

    def stop(self) -> None:
        """Let it end in order."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise


def fumehood(*arguments: str) -> str:
    """Run a command, and show it as a person would have typed it."""
    say(paint("$ fumehood " + shlex.join(arguments), "36"))
    done = subprocess.run([FUMEHOOD, *arguments], cwd=HERE, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise SurpriseError(f"`fumehood {shlex.join(arguments)}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def approve(event: dict[str, Any], arguments: str) -> None:
    """Ask whoever watches; without a terminal, say yes for them."""
    if sys.stdin.isatty():
        answer = input(f"  add_note {arguments} needs an approval. Approve it? [Y/n] ").strip().lower()
        if answer.startswith("n"):
            fumehood("approvals", "deny", event["approval_id"], "--reason", "the person said no")
            raise SurpriseError("you denied the note, and there is nothing more to show")
    fumehood("approvals", "approve", event["approval_id"], "--reason", "the demo's person said yes")


def follow(sidecar: Sidecar) -> dict[str, Any]:
    """Start the run, tell of its events, approve its note, and kill the sidecar once that is written."""
    options = ["--system", SYSTEM, *(each for name in TOOLS for each in ("--tool", name)), "--json"]
    say(paint(f"$ fumehood run {shlex.quote(QUESTION)} …", "36"))
    with tempfile.TemporaryFile("w+") as errors:
        command = [FUMEHOOD, "run", QUESTION, *options, "--timeout", str(RUN_TIMEOUT_S)]
        run = subprocess.Popen(
            command, cwd=HERE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            return _follow(run, sidecar)
        except StopIteration:
            run.wait(STOP_TIMEOUT_S)
            errors.seek(0)
            raise SurpriseError(f"the run broke off:\n{errors.read()}") from None
        finally:
            run.kill()
            run.wait()


def _follow(run: subprocess.Popen[str], sidecar: Sidecar) -> dict[str, Any]:
    lines = iter(run.stdout or ())
    arguments: dict[str, str] = {}
    killed = False
    while True:
        event = json.loads(next(lines))
        tell(event, again=event.get("call_id") in arguments)
        match event["event"]:
            case "tool_started":
                arguments[event["call_id"]] = event["arguments_json"]
            case "approval_awaited":
                approve(event, arguments.get(event["call_id"], ""))
            case "inference_started" if NOTES.exists() and not killed:
                killed = True
                headline("The note is written, and the model is at its answer: kill -9, and start the sidecar anew")
                say(f"  killed {sidecar.kill()}")
                sidecar.start()
            case "finished":
                if not killed:
                    raise SurpriseError("the model has noted nothing, so nothing could be interrupted")
                response: dict[str, Any] = event["response"]
                return response


def tell(event: dict[str, Any], *, again: bool) -> None:
    """One event, in a line. `again`: it is of a call that was told of before."""
    match event["event"]:
        case "started":
            how = "goes on from its record" if event["resumed"] else "begins"
            say(f"  run {event['request_id']} {how}")
        case "inference_started":
            say(f"  {event['name']}: the model is asked" + (f", try {event['attempt']}" * (event["attempt"] > 1)))
        case "inference_finished" if event["error"]:
            say(f"  {event['name']}: {event['error']['message']}")
        case "inference_finished":
            used = event["usage"]
            where = "from the record, without the model" if event["recorded"] else "from the model"
            say(f"  {event['name']}: {used['input_tokens']} tokens in, {used['output_tokens']} out, {where}")
        case "tool_started":
            where = "   from the record, not called again" if again else ""
            say(paint(f"  {event['tool']} {event['arguments_json']}{where}", "33"))
        case "tool_finished":
            said = event["error"]["message"] if event["error"] else event["text"]
            say(textwrap.indent(textwrap.shorten(said, 300, placeholder=" …"), "    "))
        case "approval_awaited":
            say(paint(f"  {event['tool']} waits for an approval: {event['approval_id']}", "35"))


def show(response: dict[str, Any]) -> None:
    """How it ended, held against what was promised."""
    headline("How it came out")
    if response["state"] != "COMPLETE":
        raise SurpriseError(f"the run ended as {response['state']}: {response['error']}")
    lines = NOTES.read_text(encoding="utf-8").splitlines()
    wanted = [each for each in response["tool_calls_made"] if each["tool"] == "add_note" and not each["error"]]
    if len(lines) != len(wanted):
        raise SurpriseError(f"there are {len(wanted)} notes on record, and {len(lines)} in the file: {lines}")
    say(f"  the model says:   {paint(response['content'].strip(), '32')}")
    for line in lines:
        say(f"  the note, once:   {paint(line, '32')}")
    say(f"  asked the model:  {response['usage']['inferences']} times, {response['usage']['output_tokens']} tokens")


def show_more() -> None:
    """How to go on."""
    headline("How to go on")
    say(
        textwrap.dedent("""\
          source .venv/bin/activate                          so that `fumehood` is on your PATH
          cd examples/agent && python model_server.py        the model, until Ctrl-D
          cd examples/agent && fumehood serve                the sidecar, in another terminal
          cd examples/agent && fumehood run "Which files are there?" --tool list_files
          docs/orchestration.md                              what a run may do, and how it is bounded""")
    )


def main() -> int:
    """Run the demo."""
    NOTES.parent.mkdir(parents=True, exist_ok=True)
    NOTES.unlink(missing_ok=True)
    # A checkout changes, and what an earlier demo pinned would rightly be refused then.
    (HERE / "fumehood.lock").unlink(missing_ok=True)
    sidecar = Sidecar()
    try:
        headline("A model of 1.5 billion parameters on this machine, and a sidecar with three plugins")
        say(paint("$ python examples/agent/model_server.py", "36"))
        with model():
            sidecar.start()
            headline("It is asked about examples/data, and may search there and write notes; a minute or a few")
            show(follow(sidecar))
        show_more()
    except SurpriseError as surprise:
        say(paint(f"\nThe demo failed: {surprise}", "31"))
        return 1
    finally:
        sidecar.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
