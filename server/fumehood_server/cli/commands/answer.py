"""`fumehood answer`: answers what a call's tool asks, from elsewhere than where it was called."""

from __future__ import annotations

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.failure import CommandError, ExitStatus


@click.command(short_help="Answer what a call's tool asks.")
@click.argument("call_id", metavar="CALL")
@click.argument("question_id", metavar="QUESTION")
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--args", "whole", metavar="JSON|@FILE|-", help="All that is filled in as one JSON object.")
@click.option("--decline", "choice", flag_value="decline", help="Say no.")
@click.option("--cancel", "choice", flag_value="cancel", help="Put the question aside.")
@click.option("--json", "as_json", is_flag=True, help="Print what was answered as JSON.")
@address_option
def answer(
    call_id: str,
    question_id: str,
    pairs: tuple[str, ...],
    whole: str | None,
    choice: str | None,
    as_json: bool,
    address: str | None,
) -> int:
    """Answer a question of a call of your own.

    `fumehood call TOOL --stream --json --ask` prints each question as a line, with its ids and the schema of what is to
    be filled in. On a terminal, `fumehood call` asks by itself.

    \b
    Examples:
      fumehood answer call-12ab question-1 colour=red count=2
      fumehood answer call-12ab question-1               a mere yes
      fumehood answer call-12ab question-1 --decline

    Exit status: 0 the tool is told; 2 no such question is open, or the answer doesn't fit it; 3 the sidecar can't be
    reached.
    """
    import json

    from fumehood.v1 import tool_pb2
    from fumehood.v1 import tool_service_pb2 as pb

    from fumehood_server.cli import output
    from fumehood_server.cli.arguments import gather_arguments
    from fumehood_server.cli.client import SidecarClient

    if choice is not None and (pairs or whole is not None):
        raise click.UsageError(f"--{choice} fills nothing in: no KEY=VALUE and no --args.")
    action = choice or "accept"
    content = {} if choice is not None else gather_arguments(pairs, whole, {})
    with SidecarClient(address) as client:
        try:
            client.answer_question(
                pb.AnswerQuestionRequest(
                    call_id=call_id,
                    question_id=question_id,
                    action=tool_pb2.AnswerAction.Value(f"ANSWER_ACTION_{action.upper()}"),
                    content_json=json.dumps(content, ensure_ascii=False) if content else "",
                )
            )
        except CommandError as error:
            error.todo = _TODO.get(error.code, error.todo)
            raise
    if as_json:
        output.print_json({"call_id": call_id, "question_id": question_id, "action": action, "content": content})
    else:
        output.note(f"{question_id} of {call_id}: {action}")
    return ExitStatus.OK


_TODO = {
    "REQUEST_INVALID": "The question is still open: answer it anew, as the schema in the line that asked says.",
    "QUESTION_NOT_FOUND": "It is answered, has ended with its call, or is somebody else's: see `call --stream`.",
}
