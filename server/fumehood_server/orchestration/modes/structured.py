"""Mode `structured`: tools first, then an output under a schema or grammar, asked for anew while it has faults."""

from __future__ import annotations

import functools
from dataclasses import replace

from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.constraints.contract import Contract, prepare
from fumehood_server.orchestration.constraints.faults import OutputFault, error_of
from fumehood_server.orchestration.constraints.meaning import judge
from fumehood_server.orchestration.constraints.output import check_output
from fumehood_server.orchestration.constraints.prompts import FINAL, explained, instructions
from fumehood_server.orchestration.context import ModeResult, RunContext
from fumehood_server.orchestration.engines.engine import FinishReason, InferenceAnswer, InferenceRequest
from fumehood_server.orchestration.failures import RunFailedError, failed
from fumehood_server.orchestration.lifecycle import State
from fumehood_server.orchestration.messages import Message, Role
from fumehood_server.orchestration.modes.tool_loop import tool_loop


async def run_structured(run: RunContext) -> ModeResult:
    """Carry a request out in mode `structured`.

    The model calls tools until it calls none, is then asked for the output without tools, and again with its faults
    explained, up to `max_retries` times. What is wrong with the last output fails a strict contract; of any other, the
    output is given with its faults.

    Raises:
        RunFailedError: CONFIG_*: the contract can't be used. Of a strict contract CONSTRAINT_* and VALIDATION_*. And
            what `tool_loop` and `RunContext.infer` raise.
    """
    run.enter(State.PREPARE, "the contract is read")
    asked = run.request.output
    if asked.schema is None and not asked.grammar:
        raise failed(Code.CONFIG_SCHEMA_REQUIRED, "mode structured needs a schema or a grammar for its output")
    contract = await prepare(asked, run.checks, key=run.request.turn_path)
    run.enter(State.EXECUTE, f"{len(run.tools)} tools" if run.tools else "no tools")
    said = await _with_tools(run)
    told = "\n\n".join(filter(None, (FINAL if said else "", instructions(contract, run.engine))))
    if told:
        said += (Message(role=Role.USER, text=told),)
    return await _output(run, contract, said)


async def _with_tools(run: RunContext) -> tuple[Message, ...]:
    """What was said while tools were called. Nothing, where there are none."""
    if not run.tools:
        return ()
    loop = await tool_loop(run, run.messages, name="tools", max_iterations=run.request.max_iterations)
    return loop.messages


async def _output(run: RunContext, contract: Contract, said: tuple[Message, ...]) -> ModeResult:
    """The output, after so many attempts as it may have."""
    corrections: tuple[Message, ...] = ()
    attempts = max(run.request.max_retries, 0) + 1
    attempt = 0
    while True:
        attempt += 1
        name = f"output-{attempt}"
        answer = await _ask(run, name, (*run.messages, *said, *corrections))
        run.enter(State.VALIDATE, "the model has answered")
        checked = await check_output(
            answer.message.text,
            contract,
            run.checks,
            cut_off=answer.finish_reason is FinishReason.LENGTH,
            judge=functools.partial(judge, run, f"{name}-judge"),
        )
        if not checked.faults or attempt == attempts:
            error = error_of(checked.faults, attempts=attempts) if checked.faults else None
            if error is not None and contract.asked.strict:
                raise RunFailedError(error)
            return ModeResult(
                content=answer.message.text,
                output_json=checked.output_json,
                confidence=checked.confidence,
                confidence_source="" if checked.confidence is None else "validation",
                error=error,
                said=(*said, answer.message),
            )
        corrections = _corrections(run, contract, answer, checked.faults)
        run.enter(State.EXECUTE, f"asked again: {checked.faults[0].code}")


async def _ask(run: RunContext, name: str, messages: tuple[Message, ...]) -> InferenceAnswer:
    """An answer without tools. A model that calls one all the same has said nothing by it."""
    asked, engine = run.request.output, run.engine
    answer = await run.infer(
        name,
        InferenceRequest(
            messages=messages,
            hints=run.request.hints,
            schema=asked.schema if engine.constrains_schema else None,
            grammar=asked.grammar if engine.constrains_grammar else "",
        ),
    )
    return replace(answer, message=replace(answer.message, tool_uses=()))


def _corrections(
    run: RunContext, contract: Contract, answer: InferenceAnswer, faults: tuple[OutputFault, ...]
) -> tuple[Message, ...]:
    """The last answer and what is wrong with it: those before it would only show the model more that is wrong."""
    told = explained(faults, contract, run.engine)
    return (answer.message, told) if answer.message.text else (told,)
