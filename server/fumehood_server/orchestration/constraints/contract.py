"""An output contract made ready: schema, grammar and rules can be used, and have the form in which they are checked."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fumehood_server.calls.documents import DocumentChecks, NoVerdictError
from fumehood_server.calls.round_robin import KeyPath
from fumehood_server.model.schema import CostlyPatternsError, SchemaError, check_schema
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.failures import failed
from fumehood_server.orchestration.request import OutputContract, Rule
from fumehood_server.validation.budget import INLINE
from fumehood_server.validation.documents import Document, Flaw, Kind, Rejected, Verdict

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_MAX_NAME_CHARS = 64
"""Of a rule, in faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What an output is held against."""

    asked: OutputContract
    key: KeyPath
    """Whose turn it is when documents wait for the validator process."""
    reads_json: bool
    """Whether the output is JSON: there is a schema, or a pointer into it."""
    schema_json: str
    """Canonical (RFC 8785). Empty: none."""
    schema_digest: str
    rules_json: str
    """As `Kind.RULED` has them. Empty: none."""

    @property
    def is_text(self) -> bool:
        """Whether the output is any text."""
        return not self.reads_json and not self.asked.grammar

    @property
    def is_enum(self) -> bool:
        """Whether the whole output is one value of an enumeration of texts."""
        schema = self.asked.schema or {}
        choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
        return bool(choices) and all(isinstance(each, str) for each in choices)


async def prepare(asked: OutputContract, checks: DocumentChecks, *, key: KeyPath, vote_pointer: str = "") -> Contract:
    """Make a contract ready. `key` is whoever waits; see `DocumentChecks.check`.

    Raises:
        RunFailedError: its schema, its grammar or a rule can't be used.
    """
    schema_json = await _schema(asked, checks, key)
    contract = Contract(
        asked=asked,
        key=key,
        reads_json=asked.schema is not None or bool(vote_pointer) or any(each.pointer for each in asked.rules),
        schema_json=schema_json,
        schema_digest=_digest(schema_json),
        rules_json=_rules_json((each, each.pointer) for each in asked.rules),
    )
    if _NAME.fullmatch(asked.grammar):  # a grammar has ::= in it, and names that are there were put in its place
        raise failed(Code.CONFIG_GRAMMAR_NOT_FOUND, f'there is no grammar of the name "{asked.grammar}"')
    if asked.grammar:
        problem = await _problem(checks, key, Document(Kind.MODEL_TEXT, _digest(asked.grammar), asked.grammar, ""))
        if problem:
            raise failed(Code.CONFIG_GRAMMAR_NOT_FOUND, f"the grammar {problem}")
    if asked.rules:
        everywhere = _rules_json((each, "") for each in asked.rules)
        problem = await _problem(checks, key, Document(Kind.RULED, _digest(everywhere), everywhere, "null"))
        if problem:
            raise failed(Code.VALIDATION_RULE_FAILED, problem)
    return contract


async def verdict_of(checks: DocumentChecks, key: KeyPath, document: Document) -> Verdict:
    """The verdict on what a model wrote: at once where it is little work, else of the validator process.

    Raises:
        NoVerdictError: there is none.
    """
    verdict = checks.check_now(document)
    if verdict is not None:
        return verdict
    if document.kind is Kind.OUTPUT:
        return await checks.check(key, document)
    return await checks.check_beside(key, document)


async def _schema(asked: OutputContract, checks: DocumentChecks, key: KeyPath) -> str:
    if asked.schema is None:
        return ""
    text, most = await asyncio.to_thread(json.dumps, asked.schema), INLINE.pattern_states
    try:
        try:  # a large one takes a while, mostly in Python, which lets others in; its patterns don't
            return await checks.thread.run(key, functools.partial(check_schema, text, arguments=False, max_states=most))
        except CostlyPatternsError:
            return await _check_beside(text, checks, key)
    except SchemaError as exc:
        problem, details = f"the schema {exc.problem}", {"hint": exc.hint} if exc.hint else None
        raise failed(Code.CONFIG_SCHEMA_REQUIRED, problem, details=details) from exc


async def _check_beside(schema_json: str, checks: DocumentChecks, key: KeyPath) -> str:
    """As `check_schema`, in the validator process."""
    try:
        verdict = await checks.check_beside(key, Document(Kind.SCHEMA, "", "", schema_json))
    except NoVerdictError as exc:
        raise SchemaError(_no_end(exc)) from exc
    if isinstance(verdict, Rejected):
        raise SchemaError(verdict.problem, "".join(each["message"] for each in verdict.faults))
    return verdict.text


async def _problem(checks: DocumentChecks, key: KeyPath, document: Document) -> str:
    """Why what stands in the schema's place can't be used. Empty: it can."""
    try:
        verdict = await verdict_of(checks, key, document)
    except NoVerdictError as exc:
        return _no_end(exc)
    return verdict.problem if isinstance(verdict, Rejected) and verdict.flaw is Flaw.SCHEMA_UNUSABLE else ""


def _no_end(exc: NoVerdictError) -> str:
    return f"can't be used: reading it came to no end ({exc.cause.value})"


def _rules_json(rules: Iterable[tuple[Rule, str]]) -> str:
    found = [[rule.name[:_MAX_NAME_CHARS], pointer, _rule_schema(rule)] for rule, pointer in rules]
    return json.dumps(found, ensure_ascii=False) if found else ""


def _rule_schema(rule: Rule) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if rule.one_of:
        parts.append({"enum": list(rule.one_of)})
    if rule.pattern:
        parts.append({"type": "string", "pattern": rule.pattern})
    bounds = {
        name: bound for name, bound in (("minimum", rule.minimum), ("maximum", rule.maximum)) if bound is not None
    }
    if bounds:
        parts.append({"type": "number", **bounds})
    return parts[0] if len(parts) == 1 else {"allOf": parts} if parts else {}


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
