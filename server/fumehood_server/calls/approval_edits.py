"""Arguments that an approver puts in place of the caller's: validated and permitted as those were."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from fumehood_server.calls.documents import DocumentChecks, NoVerdictError
from fumehood_server.calls.placeholders import placeholder_in
from fumehood_server.calls.steps.find import Tools
from fumehood_server.calls.steps.permit import check_permission, decide
from fumehood_server.calls.steps.prepare import arguments_of, settled
from fumehood_server.model.approvals import Approval, ApprovalRefusedError, Subject
from fumehood_server.model.call import CallError
from fumehood_server.model.policy import Policy, Requirement
from fumehood_server.validation.documents import Document, Verdict


@dataclass(frozen=True, slots=True)
class Edit:
    """What is approved then."""

    subject: Subject
    arguments_json: str
    requirements: tuple[Requirement, ...]
    """Of the rules that ask for an approval of it. Empty: none does, and those of before stand."""


async def edited(approval: Approval, text: str, tools: Tools, policy: Policy, checks: DocumentChecks) -> Edit:
    """The approval's subject with these arguments.

    Raises:
        ApprovalRefusedError: they don't fit the schema, may not be, or the tool has changed since; or it answers a
            question, and has none.
    """
    if approval.question:
        raise ApprovalRefusedError("invalid", "it answers a question, which has no arguments: approve or deny it")
    asked = approval.asked
    tool = tools.find(asked.tool)
    if tool is None or tool.spec is None or tool.definition_digest != asked.definition:
        raise ApprovalRefusedError("changed", f"{asked.tool} has changed since it was asked for")
    validate = functools.partial(_validated, checks, ("", "approvals", tool.name))
    prepared = settled(tool, await validate(arguments_of(tool, text, hashed=True)))
    if isinstance(prepared, CallError):
        raise ApprovalRefusedError("invalid", prepared.message)
    masked = await placeholder_in(prepared.text, tool.plugin_secrets)
    if masked:
        problem = f'"{masked}" stands where a secret was taken out of what is shown: write what is to run'
        raise ApprovalRefusedError("invalid", f"{problem}, or deny the call")
    permission = await decide(policy, tool, asked.caller, prepared.text, validate)
    error = check_permission(tool, permission)
    if error is not None:
        raise ApprovalRefusedError("not_permitted", error.message)
    subject = replace(asked, arguments_sha256=prepared.canonical_sha256)
    return Edit(subject, prepared.text, permission.requirements)


async def _validated(checks: DocumentChecks, path: tuple[str, ...], document: Document) -> Verdict:
    try:
        return checks.check_now(document) or await checks.check(path, document)
    except NoVerdictError as exc:
        raise ApprovalRefusedError("invalid", "the arguments could not be validated: try again") from exc
