"""Asks whoever sits at the terminal what a call's tool asks, field by field."""

from __future__ import annotations

import json
from typing import Any

import click
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.cli import output
from fumehood_server.cli.arguments import typed_argument
from fumehood_server.cli.choice_titles import titled, titles
from fumehood_server.cli.client import SidecarClient
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.schema import Parameter, Schema, parameters

_ACCEPT, _DECLINE, _CANCEL = "y", "n", "c"
_ACTIONS = {
    _ACCEPT: tool_pb2.ANSWER_ACTION_ACCEPT,
    _DECLINE: tool_pb2.ANSWER_ACTION_DECLINE,
    _CANCEL: tool_pb2.ANSWER_ACTION_CANCEL,
}
_CHOICES = "y answers, n says no, c puts it aside"


def answer_on_terminal(client: SidecarClient, question: tool_pb2.ToolQuestion) -> None:
    """Ask, and hand the answer to the tool. What doesn't fit is asked for again. End of input puts it aside.

    Raises:
        KeyboardInterrupt: whoever is asked wants the call to end.
    """
    who = output.Part(f"{output.one_line(question.tool)} asks: ", fg="cyan", bold=True)
    # What is the tool's has a mark before each line, so that it can't be taken for what this command says.
    output.say(who, question.message.replace("\n", "\n  | "), err=True)
    found = output.json_or_text(question.schema_json) if question.schema_json else {}
    schema: Schema = found if isinstance(found, dict) else {}
    while True:
        request = pb.AnswerQuestionRequest(call_id=question.call_id, question_id=question.question_id)
        try:
            choice = _choice()
            content = _fill_in(schema) if choice == _ACCEPT else {}
        except click.Abort as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # which cancels the call
                raise error.__context__ from None
            choice, content = _CANCEL, {}
        request.action = _ACTIONS[choice]
        if content:
            request.content_json = json.dumps(content, ensure_ascii=False)
        try:
            client.answer_question(request)
        except CommandError as error:
            output.note(output.one_line(error.what))
            if error.code == "REQUEST_INVALID" and choice == _ACCEPT:
                continue
        return


def _choice() -> str:
    while True:
        word: str = click.prompt(f"  Answer? {_CHOICES}", default="", err=True, show_default=False)
        if word.strip().lower()[:1] in _ACTIONS:  # a mere Enter, which may have been typed before, is no answer
            return word.strip().lower()[:1]


def _fill_in(schema: Schema) -> dict[str, Any]:
    """The object. A field that need not be filled in is left out where nothing is typed."""
    filled: dict[str, Any] = {}
    for each in parameters(schema):
        while True:
            text: str = click.prompt(_label(each, schema), default="", err=True, show_default=False)
            if not text and not each.required:
                break
            if not text:  # a mere Enter is no text
                output.note(f"{output.one_line(each.name)} has to be filled in; Ctrl-D puts the question aside")
                continue
            try:
                filled[each.name] = typed_argument(each.name, titled(text, each.schema, schema), schema)
            except CommandError as error:
                output.note(output.one_line(error.what))
                continue
            break
    return filled


def _label(field: Parameter, schema: Schema) -> str:
    shown = titles(field.schema, schema)
    values = " | ".join(f"{title} ({value})" if value != title else title for value, title in shown.items())
    words = [output.one_line(field.name), f"<{output.one_line(values or field.type_text)}>"]
    if not field.required:
        words.append(f"[{output.one_line(field.default) or 'may be left out'}]")
    if field.description:
        words.append(f"({output.one_line(field.description)})")
    return "  " + " ".join(words)
