"""A scripted model: a real HTTP server that speaks OpenAI's and Anthropic's APIs and answers as a test has told it.

    def test_x(scripted_model: ScriptedModel) -> None:
        scripted_model.calls(("read_file", {"path": "a"}), ("read_file", {"path": "b"}))  # the first answer
        scripted_model.says("Both are empty.")                                           # the second
        with running_sidecar([...], more=scripted_model.engine_table()) as sidecar: ...
        first, second = scripted_model.requests()

Answers are used up in their order. With `when`, one is only for requests whose messages hold that text, so that
requests that come at the same time get their own; with `times=None` it is never used up. What is asked beyond the
script gets a 503, which engines take as transient.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "npm"
MISSING = "the scripted model is not there: make setup"
ANSWER_TIMEOUT_S = 30.0
MODEL = "gpt-4o"

Call = tuple[str, object] | tuple[str, object, str]
"""A tool's name, its arguments (text is sent as it is) and, where it matters, the id of its use."""


class ScriptedModel:
    """The server, and the script that it answers by."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._pending: dict[int, Future[dict[str, Any]]] = {0: Future()}
        self._writing = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()
        self.url: str = self._pending[0].result(ANSWER_TIMEOUT_S)["url"]

    @property
    def base_url(self) -> str:
        """Of OpenAI's API."""
        return f"{self.url}/v1"

    @property
    def raw_url(self) -> str:
        """Likewise, for what `answers_raw` is told."""
        return f"{self.url}/raw/v1"

    def engine_table(self, name: str = "scripted", *, raw: bool = False, more: str = "") -> str:
        """An `[[engine]]` of fumehood.toml that asks this server."""
        url = self.raw_url if raw else self.base_url
        return f'[[engine]]\nname = "{name}"\nprovider = "openai"\nmodel = "{MODEL}"\nbase_url = "{url}"\n{more}\n'

    def says(
        self,
        text: str | Mapping[str, Any] | Sequence[Any],
        *,
        finish: str = "stop",
        usage: tuple[int, int] = (10, 5),
        piece: int = 20,
        when: str = "",
        times: int | None = 1,
        **options: Any,
    ) -> None:
        """Answer with text, in pieces of so many characters; anything else is written as JSON.

        `options` are aimock's of a fixture: `latency` (ms before each piece), `streamingProfile={"ttft": ms}`,
        `truncateAfterChunks` and `disconnectAfterMs` (the connection is cut).
        """
        content = text if isinstance(text, str) else json.dumps(text)
        answer = {"content": content, "finishReason": finish, "usage": _usage(usage)}
        self._add(answer, {"chunkSize": piece, **options}, when, times)

    def calls(
        self,
        *calls: Call,
        text: str = "",
        usage: tuple[int, int] = (10, 5),
        when: str = "",
        times: int | None = 1,
        **options: Any,
    ) -> None:
        """Answer with calls of tools, after some text. Options as of `says`."""
        answer: dict[str, Any] = {"toolCalls": list(map(_tool_call, calls)), "usage": _usage(usage)}
        if text:
            answer["content"] = text
        self._add(answer, options, when, times)

    def fails(
        self,
        status: int,
        message: str = "it failed",
        *,
        code: str | None = None,
        kind: str = "server_error",
        retry_after: object = None,
        when: str = "",
        times: int | None = 1,
    ) -> None:
        """Answer with an HTTP status and an error."""
        answer: dict[str, Any] = {"error": {"message": message, "type": kind}, "status": status}
        if code is not None:
            answer["error"]["code"] = code
        if retry_after is not None:
            answer["retryAfter"] = retry_after
        self._add(answer, {}, when, times)

    def answers_raw(
        self,
        *chunks: str,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        rounds: int = 1,
        pause_ms: int = 0,
        ending: str = "end",
        silent: bool = False,
        times: int = 1,
    ) -> None:
        """At `raw_url`: answer with these chunks, so many rounds of them (-1: for ever, with a pause after each).

        `ending` is "end", "drop" (the connection) or "hang". `silent`: no word, and the connection stays.
        """
        answer = {
            "chunks": chunks,
            "status": status,
            "headers": headers or {},
            "rounds": rounds,
            "pause_ms": pause_ms,
            "ending": ending,
            "silent": silent,
        }
        self._ask("raw", answer=answer, times=times)

    def requests(self) -> list[dict[str, Any]]:
        """Bodies of the requests so far, in the form of OpenAI's chat completions whatever API they came by."""
        found: list[dict[str, Any]] = self._ask("seen")["requests"]
        return found

    def headers(self) -> list[dict[str, str]]:
        """Headers of the requests so far, by lower-case name."""
        found: list[dict[str, str]] = self._ask("seen")["headers"]
        return found

    def open(self) -> int:
        """How many requests have no whole answer yet, and a client that waits."""
        return int(self._ask("seen")["open"])

    async def arrived(self, count: int) -> None:
        """Wait until so many requests have come."""
        await asyncio.to_thread(self._ask, "arrived", count=count)

    async def abandoned(self, count: int) -> None:
        """Wait until so many clients have closed a request that had no whole answer."""
        await asyncio.to_thread(self._ask, "abandoned", count=count)

    def clear(self) -> None:
        """Forget script and requests, and close what is open."""
        self._ask("clear")

    def _add(self, answer: Mapping[str, Any], options: Mapping[str, Any], when: str, times: int | None) -> None:
        self._ask("add", answer=answer, options=options, when=when, times=times)

    def _ask(self, verb: str, **command: Any) -> dict[str, Any]:
        stdin = self._process.stdin
        assert stdin is not None
        with self._writing:
            number = next(self._ids)
            answer = self._pending[number] = Future()
            stdin.write(json.dumps({"id": number, "verb": verb, **command}) + "\n")
            stdin.flush()
        line = answer.result(ANSWER_TIMEOUT_S)
        assert "error" not in line, line["error"]
        return line

    def _read(self) -> None:
        for text in self._process.stdout or ():
            line = json.loads(text)
            self._pending[line.get("id", 0)].set_result(line)


def _usage(usage: tuple[int, int]) -> dict[str, Any]:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1]}


def _tool_call(call: Call) -> dict[str, Any]:
    arguments = call[1] if isinstance(call[1], str) else json.dumps(call[1])
    return {"name": call[0], "arguments": arguments} | ({"id": call[2]} if len(call) > 2 else {})


def events(*deltas: Mapping[str, Any], finish: str | None = "stop", done: bool = True) -> Iterable[str]:
    """Chunks for `answers_raw`: a stream of chat completions with these deltas."""
    for delta in deltas:
        yield event({"index": 0, "delta": delta, "finish_reason": None})
    if finish is not None:
        yield event({"index": 0, "delta": {}, "finish_reason": finish})
    if done:
        yield "data: [DONE]\n\n"


def event(choice: Mapping[str, Any]) -> str:
    """One chunk of such a stream."""
    chunk = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n"


@contextmanager
def running_model() -> Iterator[ScriptedModel]:
    """The server, until the end of the context."""
    assert (FOLDER / "node_modules/@copilotkit/aimock").is_dir(), MISSING
    command = ["node", "scripted_model.mjs"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=FOLDER, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield ScriptedModel(process)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def model_server() -> Iterator[ScriptedModel]:
    """One for each file: tests of other files count the processes that there are. For tests, `scripted_model`."""
    with running_model() as model:
        yield model


@pytest.fixture
def scripted_model(model_server: ScriptedModel) -> Iterator[ScriptedModel]:
    """With an empty script."""
    model_server.clear()
    yield model_server
    model_server.clear()
