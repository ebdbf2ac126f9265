"""Terms of a standing approval as they are typed: an age, a count, and tests of arguments such as `/amount<=100`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from fumehood.v1 import approval_service_pb2 as pb

from fumehood_server.cli.ages import age_s
from fumehood_server.cli.failure import CommandError

_TEST = re.compile(r"(?P<pointer>(?:/[^=<>]*)?)(?P<operator>=~|<=|>=|=)(?P<value>.+)", re.DOTALL)
_HINT = 'Write "/path=~^/srv/" for a pattern, "/amount<=100" or ">=" for a range, "/to=DE12" for a value.'


def standing_terms(*, lasts: str | None, calls: int, session: bool, where: Sequence[str]) -> pb.StandingTerms:
    """The terms. `lasts` None: as long as the sidecar lets one stand.

    Raises:
        CommandError: an age or a test is none.
    """
    terms = pb.StandingTerms(calls=calls, session=session, conditions=[condition(each) for each in where])
    if lasts is not None:
        terms.valid_for.FromSeconds(age_s(lasts))
    return terms


def condition(text: str) -> pb.ArgumentCondition:
    """A test of the arguments. A value is JSON if it is a text, a number or a boolean as JSON, and else a text.

    Raises:
        CommandError: it is none.
    """
    found = _TEST.fullmatch(text)
    if found is None:
        raise CommandError(f'"{text}" is no test of an argument', _HINT)
    pointer, value = found["pointer"], found["value"]
    match found["operator"]:
        case "=~":
            return pb.ArgumentCondition(pointer=pointer, pattern=value)
        case "=":
            return pb.ArgumentCondition(pointer=pointer, one_of_json=[_scalar(value)])
        case operator:
            bound = _number(text, value)
            made = pb.ArgumentCondition(pointer=pointer)
            setattr(made, "max" if operator == "<=" else "min", bound)
            return made


def condition_text(message: pb.ArgumentCondition) -> str:
    """A test for a person to read, and to type again where it was typed."""
    parts = []
    if len(message.one_of_json) == 1:
        parts.append(f"={message.one_of_json[0]}")
    elif message.one_of_json:
        parts.append(f" in {', '.join(message.one_of_json)}")
    if message.pattern:
        parts.append(f"=~{message.pattern}")
    if message.HasField("min"):
        parts.append(f">={message.min:g}")
    if message.HasField("max"):
        parts.append(f"<={message.max:g}")
    return " and ".join(f"{message.pointer}{each}" for each in parts)


def _scalar(text: str) -> str:
    try:
        value = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return json.dumps(text)
    return text if isinstance(value, str | int | float) and text not in _CONSTANTS else json.dumps(text)


_CONSTANTS = frozenset({"NaN", "Infinity", "-Infinity"})


def _number(test: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandError(f'"{test}" compares with what is no number', _HINT) from None
