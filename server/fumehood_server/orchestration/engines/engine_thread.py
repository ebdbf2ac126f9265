"""Event loop in a thread of its own, on which engines convert, send and parse.

Libraries of models convert a conversation in one go: 200 messages take 60 ms, in which the sidecar's own loop would
serve nobody. In a thread they hold the interpreter for 5 ms at a time (`sys.getswitchinterval`), whatever comes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from fumehood_server.config.engines import EngineConfig
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.engines.engine import Engine, EngineError, InferenceAnswer, InferenceRequest
from fumehood_server.secrets import SecretStore

CLOSE_TIMEOUT_S = 5.0
"""To close connections, which waits for nobody. The thread is a daemon: it never keeps the process."""


@asynccontextmanager
async def engine_thread(configs: Sequence[EngineConfig], secrets: SecretStore) -> AsyncIterator[Mapping[str, Engine]]:
    """The engines by name. Imports their libraries.

    What is being asked when it is left fails, and so does whatever is asked afterwards.
    """
    work = _Work()
    thread = threading.Thread(target=_run, args=(work, configs, secrets), name="engines", daemon=True)
    thread.start()
    try:
        engines = await asyncio.wrap_future(work.opened)
        yield {each.name: ThreadedEngine(each, work) for each in engines}
    finally:
        work.end()
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await asyncio.shield(asyncio.wrap_future(work.closed))


class ThreadedEngine:
    """An `Engine`, asked from another loop than its own."""

    def __init__(self, engine: Engine, work: _Work) -> None:
        """`engine` works on the loop of `work`."""
        self._engine = engine
        self._work = work

    @property
    def name(self) -> str:
        """As the operator named it."""
        return self._engine.name

    @property
    def attempts(self) -> int:
        """Most tries of one inference, the first included."""
        return self._engine.attempts

    @property
    def constrains_schema(self) -> bool:
        """Whether its decoding keeps to a schema."""
        return self._engine.constrains_schema

    @property
    def constrains_grammar(self) -> bool:
        """Whether its decoding keeps to a grammar."""
        return self._engine.constrains_grammar

    async def infer(self, request: InferenceRequest, on_text: Callable[[str], None]) -> InferenceAnswer:
        """See `Engine`. `on_text` is called on the caller's loop, and never after the end. What it raises ends it."""
        own = asyncio.get_running_loop()
        listener = _Listener(on_text)
        if self._work.is_ending:
            raise self._closed()
        asking = asyncio.run_coroutine_threadsafe(
            self._engine.infer(request, lambda text: _call(own, listener.hear, text)), self._work.loop
        )
        listener.asking = asking
        try:
            answer = await asyncio.wrap_future(asking)
        except asyncio.CancelledError:
            if listener.error is not None:
                raise listener.error from None
            task = asyncio.current_task()
            if task is not None and not task.cancelling():  # the thread ended, and nobody cancelled the caller
                raise self._closed() from None
            raise
        finally:
            listener.asking = None
        if listener.error is not None:  # raised by the last piece, when the answer was there already
            raise listener.error
        return answer

    def _closed(self) -> EngineError:
        return EngineError(Code.INFERENCE_MODEL_UNAVAILABLE, f"the engine {self.name} is closed: the sidecar ends")


@dataclass(slots=True)
class _Listener:
    """Hands text on, until the answer is there or nobody wants it any more."""

    on_text: Callable[[str], None]
    asking: Future[InferenceAnswer] | None = None
    error: Exception | None = None

    def hear(self, text: str) -> None:
        if self.asking is None or self.error is not None:
            return
        try:
            self.on_text(text)
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is awaited
            self.error = error
            self.asking.cancel()


@dataclass(slots=True)
class _Work:
    """What the thread and its owner tell each other."""

    opened: Future[Sequence[Engine]] = field(default_factory=Future)
    closed: Future[None] = field(default_factory=Future)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    is_ending: bool = False

    def end(self) -> None:
        self.is_ending = True
        _call(self.loop, self.ending.set)


def _run(work: _Work, configs: Sequence[EngineConfig], secrets: SecretStore) -> None:
    try:
        with asyncio.Runner(loop_factory=lambda: work.loop) as runner:
            runner.run(_serve(work, configs, secrets))
    except Exception as error:  # noqa: BLE001 - it is raised where the engines are opened
        if not work.opened.done():
            work.opened.set_exception(error)
    finally:
        work.closed.set_result(None)


async def _serve(work: _Work, configs: Sequence[EngineConfig], secrets: SecretStore) -> None:
    from fumehood_server.orchestration.engines.model_engine import ModelEngine  # noqa: PLC0415 - imports the libraries

    async with AsyncExitStack() as stack:
        work.opened.set_result([await stack.enter_async_context(ModelEngine(each, secrets)) for each in configs])
        await work.ending.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


def _call(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object) -> None:
    """Have the loop call that, unless it has ended."""
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise


__all__ = ["ThreadedEngine", "engine_thread"]
