"""Scenarios that fail, each with why. One that isn't here must pass, and one that is here must fail."""

from __future__ import annotations

from collections.abc import Mapping

_NO_RESOURCES = "the tools of plugins come without resources; those of hosted MCP servers are not passed through yet"
_NO_PROMPTS = "the tools of plugins come without prompts; those of hosted MCP servers are not passed through yet"
_NO_COMPLETION = "completes arguments of prompts and resources, of which there are none"
_NO_SAMPLING = "a sandboxed tool doesn't ask the caller's model"
_NO_QUESTIONS = "a sandboxed tool asks its caller nothing; only an approval does, with a form of ours"
_NO_TASKS = "an extension that is not served: a call that goes on without its caller is GetCall's"

_HANDSHAKE: Mapping[str, str] = {
    "completion-complete": _NO_COMPLETION,
    "tools-call-sampling": _NO_SAMPLING,
    "tools-call-elicitation": _NO_QUESTIONS,
    "elicitation-sep1034-defaults": _NO_QUESTIONS,
    "elicitation-sep1330-enums": _NO_QUESTIONS,
    **dict.fromkeys(
        ("resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read"), _NO_RESOURCES
    ),
    **dict.fromkeys(("resources-subscribe", "resources-unsubscribe"), _NO_RESOURCES),
    **dict.fromkeys(("prompts-list", "prompts-get-simple", "prompts-get-with-args"), _NO_PROMPTS),
    **dict.fromkeys(("prompts-get-embedded-resource", "prompts-get-with-image"), _NO_PROMPTS),
}

_STATELESS: Mapping[str, str] = {
    **{
        name: why
        for name, why in _HANDSHAKE.items()
        if not name.startswith(("tools-call-", "elicitation-"))
        and name not in {"resources-subscribe", "resources-unsubscribe"}
    },
    "server-stateless": "three of its checks want tools that ask for sampling or for the caller's answers",
    "caching": "three of its checks ask for prompts and resources; those about tools pass",
    "input-required-result-basic-elicitation": _NO_QUESTIONS,
    "input-required-result-basic-sampling": _NO_SAMPLING,
    "input-required-result-basic-list-roots": "a sandbox's folders are the operator's grants, not the caller's roots",
    "input-required-result-request-state": _NO_QUESTIONS,
    "input-required-result-multiple-input-requests": _NO_QUESTIONS,
    "input-required-result-multi-round": _NO_QUESTIONS,
    "input-required-result-non-tool-request": _NO_PROMPTS,
    "input-required-result-capability-check": _NO_SAMPLING,
    **dict.fromkeys(
        (
            *("tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal"),
            *("tasks-mrtr-input", "tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-required-task-error"),
            "tasks-mrtr-composition",
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
