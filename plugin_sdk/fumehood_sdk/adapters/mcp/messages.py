"""Reads a server's lines as JSON-RPC, and finds whose answer a line is that Python doesn't read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

Message = dict[str, Any]

METHOD_NOT_FOUND = -32601
"""JSON-RPC 2.0, section 5.1."""
PROBLEM_KEY = "fumehood/problem"
"""Names, in a message, what is wrong with it. An answer that can't be read has this, and no result."""
MAX_PROBLEM_CHARACTERS = 200
HALF_A_PAIR = "it holds half of a surrogate pair, which is no character"
TOO_DEEP = "its JSON is nested too deeply"
_EDGE_BYTES = 256
"""Of a line's head and tail, where its id is looked for."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
_VERSION = rb'(?:"jsonrpc"\s{0,8}:\s{0,8}"2\.0"\s{0,8},\s{0,8})?'
_ID = rb'"id"\s{0,8}:\s{0,8}([0-9]{1,18})\s{0,8}'
_OUTCOME = rb'"(?:result|error)"\s{0,8}:'
_ID_FIRST = re.compile(rb"\s{0,8}\{\s{0,8}" + _VERSION + _ID + rb",\s{0,8}" + _VERSION + _OUTCOME)
_OUTCOME_FIRST = re.compile(rb"\s{0,8}\{\s{0,8}" + _VERSION + _OUTCOME)
_ID_LAST = re.compile(_ID + rb'(?:,\s{0,8}"jsonrpc"\s{0,8}:\s{0,8}"2\.0"\s{0,8})?\}\s{0,8}\Z')
"""The official SDK for Node.js writes the result first, and the id behind it."""


def read_message(line: bytes) -> Message | None:
    """The message in a line, with `PROBLEM_KEY` where it holds text that is none. None: it is no message.

    Of an answer that can't be read there is its id, where its head or tail has it, and `PROBLEM_KEY`.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        number = _answered_id(line)
        return None if number is None else {"id": number, PROBLEM_KEY: unreadable(error)}
    if not isinstance(message, dict):
        return None
    if _SURROGATE.search(line) and (problem := _text_problem(message)):
        message[PROBLEM_KEY] = problem
    return message


def problem_of(message: Mapping[str, Any]) -> str | None:
    """What is wrong with a message. None: nothing that has been seen."""
    problem = message.get(PROBLEM_KEY)
    return problem[: 2 * MAX_PROBLEM_CHARACTERS] if isinstance(problem, str) else None


def unreadable(error: Exception) -> str:
    """Why text was not read as JSON, in words."""
    if isinstance(error, RecursionError):
        return TOO_DEEP
    return f"its JSON can't be read: {one_line(error)}"


def one_line(error: Exception) -> str:
    """What an exception says, in bounds."""
    if isinstance(error.__context__, UnicodeEncodeError):  # of `dumps`, which has then tried another way
        return HALF_A_PAIR
    return " ".join(str(error).split())[:MAX_PROBLEM_CHARACTERS]


def shown(value: object) -> str:
    """A word or number of a server's, in bounds; of anything else only its type, for it may be nested without end."""
    return (
        str(value)[:80] if value is None or isinstance(value, str | int | float) else f"of type {type(value).__name__}"
    )


def _answered_id(line: bytes) -> int | None:
    head = line[:_EDGE_BYTES]
    if (first := _ID_FIRST.match(head)) is not None:
        return int(first[1])
    last = _ID_LAST.search(line[-_EDGE_BYTES:]) if _OUTCOME_FIRST.match(head) else None
    return None if last is None else int(last[1])


def _text_problem(message: Message) -> str:
    """Escapes of whole pairs are as frequent as emoji: only what UTF-8 can't hold is a problem."""
    try:
        json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return HALF_A_PAIR
    except RecursionError:
        return TOO_DEEP
    return ""
