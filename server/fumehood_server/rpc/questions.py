"""Answers what calls' tools ask, on the word of whoever made the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.calls import NoVerdictError
from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.caller import Caller, sees_call
from fumehood_server.model.questions import MAX_CONTENT_BYTES, Answer, AnswerAction
from fumehood_server.validation.documents import Rejected

if TYPE_CHECKING:
    from fumehood_server.model.call import CallQuestion
    from fumehood_server.rpc.server_context import ServerContext

_ACTIONS = {
    tool_pb2.ANSWER_ACTION_ACCEPT: AnswerAction.ACCEPT,
    tool_pb2.ANSWER_ACTION_DECLINE: AnswerAction.DECLINE,
    tool_pb2.ANSWER_ACTION_CANCEL: AnswerAction.CANCEL,
}
_MAX_FAULTS = 5


async def answer_question(server: ServerContext, request: pb.AnswerQuestionRequest, caller: Caller) -> None:
    """Hand the answer to the tool that asks: in a call of `caller`'s own, unless it is an operator.

    Raises:
        RefusedError: the request or the answer is wrong, or no such question is open.
    """
    try:
        await _answer(server, request, caller)
    except RefusedError as exc:
        server.refusals.about_call("AnswerQuestion", exc.refusal, request.call_id, caller.recorded)
        raise


async def _answer(server: ServerContext, request: pb.AnswerQuestionRequest, caller: Caller) -> None:
    action = _ACTIONS.get(request.action)
    if not request.call_id or not request.question_id:
        raise _invalid("call_id and question_id are required")
    if action is None:
        raise _invalid("action is required: accept, decline or cancel")
    if len(request.content_json.encode()) > MAX_CONTENT_BYTES:
        raise _invalid(f"content_json is longer than {MAX_CONTENT_BYTES} bytes")
    if request.content_json and action is not AnswerAction.ACCEPT:
        raise _invalid("content_json is for an answer that accepts")
    call = server.executor.find(request.call_id)
    question = None
    if call is not None and sees_call(server.callers, caller, call.request.caller):
        question = call.questions.find(request.question_id)
    if call is None or question is None:
        raise _not_found(request)
    content = ""
    if action is AnswerAction.ACCEPT:
        content = await _checked(server, request, question, caller)
    if not call.questions.answer(request.question_id, Answer(action, content, caller.recorded)):
        raise _not_found(request)


async def _checked(
    server: ServerContext, request: pb.AnswerQuestionRequest, question: CallQuestion, caller: Caller
) -> str:
    """What was filled in, as the tool gets it."""
    if not question.schema_json:
        if request.content_json not in ("", "{}"):
            raise _invalid("content_json is for a question that has something to fill in, and this one has not")
        return ""
    try:
        verdict = await server.executor.check_answer(question, request.content_json or "{}", caller)
    except NoVerdictError as exc:
        raise _invalid(f"content_json can't be checked: {exc}") from exc
    if isinstance(verdict, Rejected):
        faults = [f"{each.get('pointer') or 'all of it'}: {each.get('message', '')}" for each in verdict.faults]
        raise _invalid(f"content_json doesn't fit the question: {verdict.problem or '; '.join(faults[:_MAX_FAULTS])}")
    return verdict.text


def _not_found(request: pb.AnswerQuestionRequest) -> RefusedError:
    text = f'no question "{request.question_id[:128]}" of a call "{request.call_id[:128]}" is open'
    return RefusedError(Refusal(RefusalReason.QUESTION_NOT_FOUND, text))


def _invalid(message: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.REQUEST_INVALID, message))
