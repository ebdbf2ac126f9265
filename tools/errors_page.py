"""Writes docs/errors.md from the tables of error codes and refusals in the server; a test compares them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fumehood_server.model.taxonomy import MEANINGS, Category, Code
from fumehood_server.rpc.status import REFUSALS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "errors.md"
_HEAD = """# Errors

Every code that a call can end with, and every reason for which a request is refused. This page is
made from the tables in the code (`make gen`). The keys of `details_json` and the cases of each code
stand in [protocol.md](protocol.md#31-error-codes), with what to do about each refusal
([2.1](protocol.md#21-two-error-planes)).

A code is never renamed or reused. Switch on `code`, and on `details.reason` where there is one;
`retryable` of the error itself says whether the same call may be made again.
"""
_REFUSED = """## Refused before anything ran

The `reason` of the `google.rpc.ErrorInfo` in a status. None of these is a call's outcome, and none
is recorded as one.

| reason | gRPC status | retry |
|---|---|---|
"""


def page() -> str:
    """The page's text."""
    parts = [_HEAD, *_categories(), _REFUSED + "\n".join(_refusals()) + "\n"]
    return "\n".join(parts)


def _categories() -> Iterator[str]:
    for category in Category:
        rows = ["| code | when | who can do what | retry |", "|---|---|---|---|"]
        for code in Code:
            meaning = MEANINGS[code]
            if code.category is not category:
                continue
            rows.append(f"| `{code.value}` | {meaning.when} | {meaning.act} | {meaning.retry.value} |")
        yield f"## {category.value}\n\n" + "\n".join(rows) + "\n"


def _refusals() -> Iterator[str]:
    for reason, row in REFUSALS.items():
        yield f"| `{reason.value}` | `{row.code.name}` | {'yes' if row.retryable else 'no'} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
