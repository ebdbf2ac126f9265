"""Options of `fumehood run` as a request."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fumehood.v1 import orchestration_service_pb2 as pb

from fumehood_server.cli.failure import CommandError

MAX_TEXT_BYTES = 2 * 1024 * 1024
"""Of a file, or of stdin: above what a request may have, so that the sidecar's own bound is what a caller hears of."""

_ROLES = {"system", "user", "assistant", "tool"}
_MESSAGE_KEYS = {"role", "text", "tool_uses", "tool_use_id", "is_error"}
_MESSAGE_HINT = 'Write an array, or an object a line, such as {"role": "user", "text": "Hello"}.'


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the command was given. None and empty: nothing."""

    prompt: str | None
    system: str | None
    message_file: str | None
    session: str
    request_id: str
    mode: str | None
    schema: str | None
    grammar: str | None
    repair: bool
    strict: bool
    plan: str | None
    replicas: int | None
    consensus: str | None
    vote: str
    tools: tuple[str, ...]
    no_tools: bool
    engine: str
    max_iterations: int | None
    max_tokens: int | None
    temperature: float | None
    timeout_s: float | None
    budget_tokens: int | None
    budget_cost: float | None
    budget_tool_calls: int | None


def make_request(options: RunOptions) -> pb.SystemRequest:
    """The request. It goes on where the connection is lost, and is joined again by its id.

    Raises:
        CommandError: a file can't be read, or options contradict each other.
    """
    mode = options.mode or _implied_mode(options)
    request = pb.SystemRequest(
        request_id=options.request_id,
        session_id=options.session,
        messages=_messages(options),
        mode=pb.Mode.Value(f"MODE_{mode.upper()}"),
        allowed_tools=options.tools,
        no_tools=options.no_tools,
        engine=options.engine,
        continue_if_disconnected=True,
    )
    _set_hints(request, options)
    _set_output(request.output, options)
    _set_budget(request.budget, options)
    _set_mode(request, options, mode)
    return request


def _implied_mode(options: RunOptions) -> str:
    """The mode that an option is of, so that nobody has to say it twice."""
    if options.plan is not None:
        return "plan"
    if options.replicas is not None or options.consensus is not None or options.vote:
        return "redundant"
    return "structured" if options.schema is not None or options.grammar is not None else "chat"


def _messages(options: RunOptions) -> list[pb.Message]:
    found = []
    if options.system is not None:
        text = read_text("--system", options.system[1:]) if options.system.startswith("@") else options.system
        found.append(pb.Message(role=pb.MESSAGE_ROLE_SYSTEM, text=text))
    if options.message_file is not None:
        found += read_messages(options.message_file)
    if options.prompt is not None:
        text = read_text("the prompt", "-").rstrip("\n") if options.prompt == "-" else options.prompt
        found.append(pb.Message(role=pb.MESSAGE_ROLE_USER, text=text))
    if not found:
        raise CommandError("nothing is asked", 'Give a prompt, such as `fumehood run "What is in notes.txt?"`, or -.')
    return found


def read_messages(source: str) -> list[pb.Message]:
    """Messages of a file, or of stdin where it is `-`: a JSON array, or an object a line.

    Raises:
        CommandError: they can't be read.
    """
    text = read_text("--message-file", source)
    try:
        value = json.loads(text) if text.lstrip().startswith("[") else [*map(json.loads, _lines(text))]
    except (ValueError, RecursionError) as error:
        raise _bad(f"--message-file {source} is not JSON: {error}", _MESSAGE_HINT) from error
    return [_message(each, f"message {number} of {source}") for number, each in enumerate(value, 1)]


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _message(value: Any, where: str) -> pb.Message:  # noqa: ANN401 - any JSON
    if not isinstance(value, dict) or not value.keys() <= _MESSAGE_KEYS or value.get("role") not in _ROLES:
        roles = ", ".join(sorted(_ROLES))
        raise _bad(f"{where} is none: it has a role ({roles}) and a text", _MESSAGE_HINT)
    try:
        return pb.Message(
            role=pb.MessageRole.Value(f"MESSAGE_ROLE_{value['role'].upper()}"),
            text=value.get("text", ""),
            tool_uses=[pb.ToolUse(**each) for each in value.get("tool_uses", ())],
            tool_use_id=value.get("tool_use_id", ""),
            is_error=value.get("is_error", False),
        )
    except (TypeError, ValueError) as error:
        raise _bad(f"{where} is none: {error}", _MESSAGE_HINT) from error


def _set_hints(request: pb.SystemRequest, options: RunOptions) -> None:
    hints = request.hints
    if options.max_tokens is not None:
        hints.max_tokens = options.max_tokens
    if options.temperature is not None:
        hints.temperature = options.temperature
    if options.timeout_s is not None:
        hints.timeout.FromNanoseconds(round(options.timeout_s * 1e9))


def _set_output(output: pb.OutputContract, options: RunOptions) -> None:
    if options.schema is not None:
        output.schema_json = _json_text("--schema", options.schema)
    if options.grammar is not None:
        is_file = options.grammar == "-" or Path(options.grammar).is_file()
        output.grammar = read_text("--grammar", options.grammar) if is_file else options.grammar
    output.repair_allowed = options.repair
    output.strict = options.strict


def _set_budget(budget: pb.RunBudget, options: RunOptions) -> None:
    budget.max_tokens = options.budget_tokens or 0
    budget.max_cost = options.budget_cost or 0.0
    budget.max_tool_calls = options.budget_tool_calls or 0


def _set_mode(request: pb.SystemRequest, options: RunOptions, mode: str) -> None:
    """The options of one mode. Those that are given for another are refused by the sidecar, which names them."""
    if options.max_iterations is not None:
        if mode == "chat":
            request.chat.max_iterations = options.max_iterations
        elif mode == "structured":
            request.structured.max_tool_iterations = options.max_iterations
        else:
            raise CommandError(f"--max-iterations is not for mode {mode}", "It bounds a model that calls tools.")
    if options.plan is not None:
        request.plan.plan_json = _json_text("--plan", options.plan)
    if options.replicas is not None:
        request.redundant.replicas = options.replicas
    if options.consensus is not None:
        request.redundant.consensus = pb.Consensus.Value(f"CONSENSUS_{options.consensus.upper()}")
    if options.vote:
        request.redundant.vote_pointer = options.vote


def _json_text(option: str, source: str) -> str:
    text = read_text(option, source)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(f"{option} {source} is not JSON: {error}", "Give a file that holds one JSON value.") from error
    return text


def read_text(option: str, source: str) -> str:
    """A file as text, or stdin where it is `-`.

    Raises:
        CommandError: it can't be read, is too large, or is not UTF-8.
    """
    try:
        if source == "-":
            raw = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                raw = file.read(MAX_TEXT_BYTES + 1)
        if len(raw) > MAX_TEXT_BYTES:
            raise _bad(f"{option}: {source} is larger than {MAX_TEXT_BYTES:,} bytes", "Send less.")
        return raw.decode()
    except OSError as error:
        raise _bad(f"{option}: can't read {source}: {error.strerror}", "Give a file that can be read.") from error
    except UnicodeDecodeError as error:
        raise _bad(f"{option}: {source} is not UTF-8", "Give a text.") from error


def _bad(what: str, todo: str) -> CommandError:
    return CommandError(what, todo, code="BAD_ARGUMENTS")
