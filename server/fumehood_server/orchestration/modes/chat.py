"""Mode `chat`: the model answers in text, and calls tools until it does. Messages from outside make further turns."""

from __future__ import annotations

from fumehood_server.orchestration.context import ModeResult, RunContext
from fumehood_server.orchestration.lifecycle import State
from fumehood_server.orchestration.messages import Message
from fumehood_server.orchestration.modes.tool_loop import tool_loop


async def run_chat(run: RunContext) -> ModeResult:
    """Carry a request out in mode `chat`.

    The iterations of all its turns together are bounded by the request's.

    Raises:
        RunFailedError: see `tool_loop`.
    """
    run.enter(State.PREPARE, f"{len(run.tools)} tools")
    said: tuple[Message, ...] = ()
    turn = 0
    while True:
        turn += 1
        run.enter(State.EXECUTE, "the model is asked" if turn == 1 else "further messages")
        loop = await tool_loop(
            run, (*run.messages, *said), name=f"chat{turn}", max_iterations=run.request.max_iterations
        )
        said += loop.messages
        run.enter(State.VALIDATE, "tools ask for the end" if loop.terminated else "the model has answered")
        further = () if loop.terminated else run.follow_ups(f"chat{turn + 1}-1")
        if not further:
            return ModeResult(content=loop.text, said=said)
        said += further
