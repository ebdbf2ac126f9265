"""Scenarios that fail, each with why. One that isn't here must pass, and one that is here must fail."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path

_NO_RESOURCES = "asks for a URI of the suite's own; a hosted server's begins with whose it is here"
_NO_PROMPTS = "asks for a name of the suite's own; a hosted server's prompt begins with whose it is here"
_NO_SUBSCRIPTIONS = "changes of resources are not passed through"
_NO_COMPLETION = "completion of arguments is not passed through"
_NO_SAMPLING = "a tool asks the engine that the operator grants its plugin, and not the caller's model"
_NO_RESUMPTION = "streams can't be resumed, so their events have no ids and they name no time to come back after"
_NO_TASKS = "an extension that is not served: a call that goes on without its caller is GetCall's"

_HANDSHAKE: Mapping[str, str] = {
    "completion-complete": _NO_COMPLETION,
    "tools-call-sampling": _NO_SAMPLING,
    "server-sse-polling": _NO_RESUMPTION,
    **dict.fromkeys(("resources-read-text", "resources-read-binary", "resources-templates-read"), _NO_RESOURCES),
    **dict.fromkeys(("resources-subscribe", "resources-unsubscribe"), _NO_SUBSCRIPTIONS),
    **dict.fromkeys(("prompts-get-simple", "prompts-get-with-args"), _NO_PROMPTS),
    **dict.fromkeys(("prompts-get-embedded-resource", "prompts-get-with-image"), _NO_PROMPTS),
}

_STATELESS: Mapping[str, str] = {
    **{
        name: why
        for name, why in _HANDSHAKE.items()
        if not name.startswith(("tools-call-", "elicitation-"))
        and name not in {"resources-subscribe", "resources-unsubscribe", "server-sse-polling"}
    },
    "server-stateless": (
        "some of its checks want tools that ask for the caller's model, or that change what the server has"
    ),
    "input-required-result-basic-sampling": _NO_SAMPLING,
    "input-required-result-basic-list-roots": "a sandbox's folders are the operator's grants, not the caller's roots",
    "input-required-result-multiple-input-requests": _NO_SAMPLING,
    "input-required-result-non-tool-request": _NO_PROMPTS,
    "input-required-result-capability-check": _NO_SAMPLING,
    **dict.fromkeys(
        (
            *("tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal"),
            *("tasks-mrtr-input", "tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-required-task-error"),
            *("tasks-mrtr-composition", "tasks-status-notifications"),
        ),
        _NO_TASKS,
    ),
}

RUNS: tuple[tuple[str, tuple[str, ...], Mapping[str, str]], ...] = (
    ("stable", ("--suite", "all"), _HANDSHAKE),
    ("alpha", ("--requirements", "2025-11-25"), _HANDSHAKE),
    ("alpha", ("--requirements", "2026-07-28"), _STATELESS),
)
"""Which of the installed suites is run, by which options, and what fails there."""

PARTS: Mapping[str, frozenset[str]] = {
    "server-stateless": frozenset(
        (
            "sep-2575-missing-capability-http-400",
            "sep-2575-server-rejects-undeclared-capability",
            "sep-2575-server-sends-prompts-list-changed-on-subscription",
            "sep-2575-server-sends-tools-list-changed-on-subscription",
        )
    ),
}
"""Of scenarios that pass in part, the checks that are left. The others must pass."""

PAGE = Path(__file__).parents[2] / "docs" / "mcp-server.md"
_SECTION = re.compile(r"^## Conformance$(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_ROW = re.compile(r"^\|(.*?)\|", re.MULTILINE)


def left_scenarios() -> frozenset[str]:
    """All that are left, of whichever suite."""
    return frozenset(itertools.chain.from_iterable(left for _, _, left in RUNS))


def documented() -> frozenset[str]:
    """What users are told of them: the first column of the table."""
    section = _SECTION.search(PAGE.read_text(encoding="utf-8"))
    rows = _ROW.findall(section[1]) if section is not None else []
    return frozenset(itertools.chain.from_iterable(re.findall(r"`([a-z0-9-]+)`", row) for row in rows))
