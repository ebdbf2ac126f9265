"""Faults of an output, each with the code of the taxonomy that says what kind of fault it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from fumehood_server.calls.documents import Cause, NoVerdictError
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code


@dataclass(frozen=True, slots=True)
class OutputFault:
    """What is wrong at one place of an output."""

    code: Code
    pointer: str
    """JSON pointer (RFC 6901). Empty: the whole output."""
    rule: str
    """Keyword of the schema, or name of the contract's rule; else what was looked at: `json`, `grammar`, `meaning`."""
    message: str

    def __str__(self) -> str:
        """For people and models."""
        return f"at {self.pointer}: {self.message}" if self.pointer else self.message


def of_schema(found: Iterable[Mapping[str, str]]) -> tuple[OutputFault, ...]:
    """Faults that validation named. What is no value of an enumeration has a code of its own."""
    return tuple(
        OutputFault(
            Code.CONSTRAINT_ENUM_UNRECOGNIZED if each["rule"] in {"enum", "const"} else Code.CONSTRAINT_SCHEMA_INVALID,
            each["pointer"],
            each["rule"],
            each["message"],
        )
        for each in found
    )


def unchecked(code: Code, rule: str, error: NoVerdictError) -> OutputFault:
    """The fault of an output that could not be checked: nobody may take it for checked."""
    why = {
        Cause.TIME: "checking it took too long",
        Cause.MEMORY: "checking it took too much memory",
        Cause.DIED: "what checks it died of it",
        Cause.NOT_STARTED: "the sidecar has no process to check it in",
    }
    return OutputFault(code, "", rule, f"it could not be checked: {why[error.cause]}")


def error_of(faults: Sequence[OutputFault], *, attempts: int) -> CallError:
    """The error that tells of an output's faults, by the first of them."""
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return CallError(
        code=faults[0].code,
        message=f"The output is not as it has to be: {faults[0]}{more}.",
        retryable=False,
        details={"attempts": attempts, "faults": [asdict(each) for each in faults]},
    )
