"""`fumehood run`: runs a model with the sidecar's tools, and shows it live."""

from __future__ import annotations

import secrets
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.complete import engine_names, grammar_names, run_ids, session_ids, tool_names
from fumehood_server.cli.failure import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from fumehood.v1 import orchestration_service_pb2 as pb

    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.run.run_views import RunView

_ID_BYTES = 8
_SIGNAL_BASE = 128
_MAX_COMMAND_CHARS = 400
_ABOVE_0 = click.FloatRange(min=0, min_open=True)


@click.command(short_help="Run a model with your tools.")
@click.argument("prompt", required=False)
@click.option("--system", metavar="TEXT|@FILE", help="Instructions, before everything else.")
@click.option("--message-file", metavar="FILE|-", help="Messages before the prompt: a JSON array, or an object a line.")
@click.option("--session", default="", metavar="ID", shell_complete=session_ids, help="Go on with a conversation.")
@click.option("--id", "request_id", default="", metavar="ID", shell_complete=run_ids, help="Join or go on with a run.")
@click.option(
    "--mode",
    type=click.Choice(["chat", "structured", "plan", "redundant"]),
    help="How it is carried out.  [default: by the options; chat]",
)
@click.option("--schema", metavar="FILE", help="JSON Schema of the output.")
@click.option("--grammar", metavar="NAME|FILE", shell_complete=grammar_names, help="Grammar (GBNF) of the output.")
@click.option("--repair", is_flag=True, help="Let output that is nearly JSON be mended.")
@click.option("--strict", is_flag=True, help="Give no output that has faults.")
@click.option("--plan", metavar="FILE", help="The plan, as JSON. Without it, --mode plan has a model make one.")
@click.option("--replicas", type=click.IntRange(min=2), metavar="N", help="How many inferences vote.")
@click.option("--consensus", type=click.Choice(["majority", "unanimous", "plurality"]), help="What decides the vote.")
@click.option("--vote", default="", metavar="POINTER", help="The part of the output that votes are compared by.")
@click.option(
    "--tool", "tools", multiple=True, metavar="NAME", shell_complete=tool_names, help="The model may call it alone."
)
@click.option("--no-tools", is_flag=True, help="The model may call none.")
@click.option("--engine", default="", metavar="NAME", shell_complete=engine_names, help="Which [[engine]] is asked.")
@click.option("--max-iterations", type=click.IntRange(min=1), metavar="N", help="Most answers that call tools.")
@click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="Of one answer.")
@click.option("--temperature", type=click.FloatRange(0, 2), metavar="0…2", help="0 asks for the likeliest answer.")
@click.option("--timeout", "timeout_s", type=_ABOVE_0, metavar="SECONDS", help="The longest that the run may take.")
@click.option("--budget-tokens", type=click.IntRange(min=1), metavar="N", help="Of all answers, in and out.")
@click.option("--budget-cost", type=_ABOVE_0, metavar="AMOUNT", help="By the engine's prices.")
@click.option("--budget-tool-calls", type=click.IntRange(min=1), metavar="N", help="Most calls of tools.")
@click.option("--quiet", is_flag=True, help="Print the answer alone.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each event; with --quiet the response alone.")
@address_option
def run(*, prompt: str | None, quiet: bool, as_json: bool, address: str | None, **given: Any) -> int:  # noqa: ANN401 - options, as click gives them
    """Run a model with the sidecar's tools, and show what it says and does.

    The tools are those that you may call, in their sandboxes. One that needs an approval is asked about here: y, or n
    and why. A line that you type meanwhile is said to the model when it would have ended; after a ! before its next
    answer. PROMPT may be - for stdin.

    Ctrl-C stops the run; the same command with --id goes on with it, and nothing that it has done is done twice. So
    does a run that a crash has interrupted. Where the connection is lost, the run goes on, and is joined again.

    \b
    Examples:
      fumehood run "Which files in notes/ speak of Ada?"
      fumehood run "And which of them is the newest?" --session ada
      git diff | fumehood run - --system "Review this change." --no-tools
      fumehood run "Whom does the letter name?" --tool read_file --schema person.json --repair
      fumehood run "Is it spam?" --message-file mail.json --replicas 5 --consensus majority
      fumehood run "Sum it up" --mode plan --plan steps.json --budget-tool-calls 20
      fumehood run "Sum it up" --json --quiet | jq -r .content

    Exit status: 0 done; 1 the run failed; 2 the request was wrong; 3 the sidecar can't be reached.
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.cli.run.run_ending import footer, run_status
    from fumehood_server.cli.run.run_follow import follow_run
    from fumehood_server.cli.run.run_request import RunOptions, make_request

    given["request_id"] = given["request_id"] or f"run-{secrets.token_hex(_ID_BYTES)}"
    request = make_request(RunOptions(prompt=prompt, **given))
    with SidecarClient(address) as client:
        shows = sys.stderr.isatty() and not (quiet or as_json)
        view = _view(client, request, live=shows, quiet=quiet, as_json=as_json)
        try:
            followed = follow_run(client, request, view, interactive=shows)
        except CommandError as error:
            if error.status is ExitStatus.UNREACHABLE:
                error.todo = f"{error.todo} Go on with the run: {_again(request.request_id)}".strip()
            raise
    response = followed.response
    if response is None:
        if followed.stopped:
            output.note(f"stopped: what the run has done stays done. Go on with it: {_again(request.request_id)}")
        else:
            output.note(f"the run goes on by itself. Join it: {_again(request.request_id)}")
        return _SIGNAL_BASE + followed.signalled
    view.finish(response)
    if shows:
        output.say(output.Part(footer(response, followed.wall_s), dim=True), err=True)
    return run_status(response, named_engine=bool(request.engine))


def _view(client: SidecarClient, request: pb.SystemRequest, *, live: bool, quiet: bool, as_json: bool) -> RunView:
    from fumehood.v1 import orchestration_service_pb2 as pb

    from fumehood_server.cli.run.run_screen import LiveView
    from fumehood_server.cli.run.run_views import JsonView, PlainView, QuietView

    if as_json:
        return JsonView(quiet=quiet)
    if quiet:
        return QuietView()
    if not live:
        return PlainView()
    one_at_a_time = request.mode in {pb.MODE_CHAT, pb.MODE_STRUCTURED}
    return LiveView(shows_text=one_at_a_time and sys.stdout.isatty(), level_of=_levels(client))


def _levels(client: SidecarClient) -> Callable[[str], str]:
    """Levels of tools, each asked for once. Empty where the sidecar does not say."""
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.cli.json_output import level_name

    known: dict[str, str] = {}

    def level_of(tool: str) -> str:
        if tool not in known:
            try:
                known[tool] = level_name(client.get_tool(tool).definition.side_effects)
            except CommandError:
                known[tool] = ""
        return known[tool]

    return level_of


def _again(request_id: str) -> str:
    """The command that goes on with the run: this one, with its id, and without a token."""
    words, skip = [], False
    for word in sys.argv[1:]:
        if skip or word in {"--token", "--id"}:
            skip = not skip
        elif not word.startswith(("--token=", "--id=")):
            words.append(word)
    command = shlex.join(["fumehood", *words[:1], "--id", request_id, *words[1:]])
    return command if len(command) <= _MAX_COMMAND_CHARS else f"the same command with --id {request_id}"
