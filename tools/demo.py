"""`make demo`: the sidecar with the example plugins, each level at work, and three break-outs that fail.

Each attempt is made twice: here, where it must succeed, and as code of a "model" in the `run_python` tool, where it
must fail. Exits with 1 when either comes out otherwise.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
BUILD = ROOT / "build"
FUMEHOOD = str(Path(sys.executable).with_name("fumehood"))
START_TIMEOUT_S = 60
CALL_TIMEOUT_S = 60
COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class SurpriseError(Exception):
    """Something did not come out as the demo says it does."""


@dataclass(frozen=True)
class Attempt:
    """One way out that is tried."""

    title: str
    code: str
    """Prints "out: …" when it got out, and raises when it did not."""
    stopped_by: str


def paint(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if COLOUR else text


def say(text: str = "") -> None:
    print(text, flush=True)


def headline(text: str) -> None:
    say()
    say(paint(text, "1"))


@contextmanager
def sidecar() -> Iterator[int]:
    """`fumehood serve` in the folder of the examples, as an operator would start it. Yields its process id."""
    (BUILD / "notes").mkdir(parents=True, exist_ok=True)
    # A checkout changes, and what an earlier demo pinned would rightly be refused then.
    (EXAMPLES / "fumehood.lock").unlink(missing_ok=True)
    log_path = BUILD / "demo-sidecar.log"
    say(paint("$ cd examples && fumehood serve", "36"))
    with log_path.open("wb") as log:
        process = subprocess.Popen([FUMEHOOD, "serve"], cwd=EXAMPLES, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_until_served(process, log_path)
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                status = process.wait(START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    if status != 0:
        raise SurpriseError(f"the sidecar ended with status {status}; its log is {log_path}")


def wait_until_served(process: subprocess.Popen[bytes], log_path: Path) -> None:
    """Ask until the sidecar answers: each question waits for it a while by itself."""
    for _ in range(START_TIMEOUT_S):
        asked = subprocess.run([FUMEHOOD, "tools", "--json"], cwd=EXAMPLES, capture_output=True, check=False)
        if asked.returncode == 0:
            return
        try:
            status = process.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
        raise SurpriseError(f"the sidecar ended with status {status}:\n{log_path.read_text()}")
    raise SurpriseError(f"the sidecar did not answer; its log is {log_path}")


def run(*arguments: str, expect: int = 0, show: bool = True) -> str:
    """Run the command line where the examples are, and show what a person would see."""
    if show:
        say(paint("$ fumehood " + shlex.join(arguments), "36"))
    done = subprocess.run(
        [FUMEHOOD, *arguments],
        cwd=EXAMPLES,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if show else subprocess.PIPE,
        text=True,
        check=False,
        timeout=CALL_TIMEOUT_S,
    )
    if show:
        say(textwrap.indent(done.stdout.rstrip(), "  "))
    if done.returncode != expect:
        raise SurpriseError(
            f"`fumehood {shlex.join(arguments)}` ended with status {done.returncode} instead of {expect}:"
            f"\n{done.stdout}{done.stderr or ''}"
        )
    return done.stdout


def call_json(tool: str, **arguments: object) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run("call", tool, "--args", json.dumps(arguments), "--json", show=False))
    return result


def show_levels() -> None:
    headline("1. What can be called, and what each tool may do")
    run("tools")

    headline("2. Each level at work")
    say("none: no files, no network")
    run("call", "roll_dice", "count=3", "sides=6")
    run("call", "slow_count", "upto=5", "delay_ms=100", "--stream")
    say("read: the folder that the operator granted, and no other")
    run("call", "search_files", "query=sash")
    run("call", "read_file", "path=../../README.md", expect=1)
    say("write: the folder granted for writing, since the operator allowed this tool")
    run("call", "write_file", "path=demo.txt", "text=written through a hood")
    say(f"  build/notes/demo.txt now says: {(BUILD / 'notes' / 'demo.txt').read_text()!r}")
    say("any language: this plugin is Node without our SDK, and its pattern would backtrack for years")
    run("call", "match_regex", "pattern=(?<user>[a-z]+)@", "texts=ada@example.org")
    run("call", "match_regex", "pattern=(a+)+$", f"texts={'a' * 40}b", "--timeout", "1", expect=1)
    say("wrong arguments come back as something that a model can mend")
    run("call", "roll_dice", "count=30", "sides=7", expect=2)


def attempts(secret: Path, sidecar_pid: int) -> tuple[Attempt, ...]:
    return (
        Attempt(
            "phone home",
            "import socket\ns = socket.socket()\nprint('out: a socket', s.fileno() > 0)",
            "seccomp: socket() is denied at this level, and the network namespace is empty besides",
        ),
        Attempt(
            "read a secret of the host",
            f"print('out:', open({str(secret)!r}).read())",
            "the mount namespace: the file does not exist in there; Landlock would refuse it if it did",
        ),
        Attempt(
            "signal the sidecar",
            f"import os\nos.kill({sidecar_pid}, 0)\nprint('out: it can be signalled')",
            "the PID namespace: no process of the host has a number in there; Landlock scopes signals besides",
        ),
    )


def show_attempts(sidecar_pid: int) -> None:
    headline("3. Three attempts to break out, as code that a model wrote (tool run_python, level none)")
    secret = BUILD / "demo-secret.txt"
    secret.write_text(secrets.token_hex(8))
    try:
        for attempt in attempts(secret, sidecar_pid):
            try_out(attempt)
    finally:
        secret.unlink()
    result = call_json("run_python", code="print('still here')")
    say()
    say("What held that process, as its result says:")
    for layer in result["sandbox"]["layers"]:
        say(f"  {layer['name']:<13} {'(weaker here) ' if layer['weaker'] else ''}{layer['detail']}")


def try_out(attempt: Attempt) -> None:
    say()
    say(paint(attempt.title, "1"))
    outside = subprocess.run(
        [sys.executable, "-c", attempt.code], capture_output=True, text=True, check=False, timeout=CALL_TIMEOUT_S
    )
    if not outside.stdout.startswith("out:"):
        raise SurpriseError(f"the control failed, so nothing is shown: {attempt.title}: {outside.stderr}")
    say("  outside the sandbox: " + paint("it works", "33"))
    details = call_json("run_python", code=attempt.code)["details"]
    if details["exit_status"] == 0 or "out:" in details["stdout"]:
        raise SurpriseError(f"an attempt succeeded: {attempt.title}: {details['stdout']}")
    say("  in a tool:           " + paint(details["stderr"].strip().splitlines()[-1], "32"))
    say(f"  stopped by:          {attempt.stopped_by}")


def show_more() -> None:
    headline("4. How to go on")
    say(
        textwrap.dedent("""\
          source .venv/bin/activate             so that `fumehood` is on your PATH
          fumehood doctor                       what this machine can enforce
          fumehood plugin new hello             write a tool of your own
          fumehood plugin dev hello             serve it, and reload it on each save
          examples/fumehood.toml                what the operator granted in this demo
          examples/clients/                     callers in Python, Node and Go
          docs/protocol.md                      plugins and clients in any language
          docs/sandbox.md                       what holds a tool, in the order in which it is applied""")
    )


def main() -> int:
    try:
        with sidecar() as sidecar_pid:
            show_levels()
            show_attempts(sidecar_pid)
        show_more()
    except SurpriseError as surprise:
        say(paint(f"\nThe demo failed: {surprise}", "31"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
