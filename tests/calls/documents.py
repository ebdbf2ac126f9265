"""The steps that validate, as functions of texts: with the validator process's budget, and without the process."""

from __future__ import annotations

from fumehood_server.calls.steps.check import Checked, checked_result, output_of
from fumehood_server.calls.steps.prepare import arguments_of, settled
from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.worker import InvocationResult
from fumehood_server.validation.budget import PROCESS
from fumehood_server.validation.documents import Accepted, check
from fumehood_server.validation.schemas import Validators


def prepare_arguments(tool: RegisteredTool, text: str, validators: Validators) -> str | CallError:
    made = settled(tool, check(arguments_of(tool, text), validators, PROCESS))
    return made.text if isinstance(made, Accepted) else made


def check_result(tool: RegisteredTool, spec: WorkerSpec, result: InvocationResult, validators: Validators) -> Checked:
    document = output_of(tool, spec, result)
    verdict = None if document is None else check(document, validators, PROCESS)
    return checked_result(tool, spec, result, verdict)
