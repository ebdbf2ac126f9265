"""`fumehood call`: calls a tool and prints its result."""

from __future__ import annotations

import contextlib
import functools
import secrets
import sys
from typing import TYPE_CHECKING, Any

import click

from fumehood_server.cli.address import address_option
from fumehood_server.cli.approval_wait import approval_of, once_approved, tell_cancelled
from fumehood_server.cli.complete import argument_words, run_ids, tool_names
from fumehood_server.cli.failure import ExitStatus
from fumehood_server.model.tool import MAX_TIMEOUT_S

if TYPE_CHECKING:
    from fumehood.v1 import tool_pb2

    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.json_output import JsonObject


@click.command(short_help="Call a tool.")
@click.argument("tool", default="", shell_complete=tool_names)
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=argument_words)
@click.option("--args", "whole", metavar="JSON|@FILE|-", help="All arguments as one JSON object; - reads stdin.")
@click.option("--batch", metavar="FILE|-", help='Calls, one {"tool": NAME, "arguments": {...}} a line.')
@click.option("--stream", is_flag=True, help="Show how the call is getting on.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, max=MAX_TIMEOUT_S, min_open=True),
    metavar="SECONDS",
    help="The longest that the call may take.",
)
@click.option("--call-id", default="", metavar="ID", help="Your own name for the call; it is in every log line.")
@click.option(
    "--run",
    default="",
    metavar="RUN",
    shell_complete=run_ids,
    help="What the call belongs to (its request_id), such as a run that `journal replay RUN --from` made.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait for an approval: call again with the same --call-id.")
@click.option(
    "--ask/--no-ask",
    "asks",
    default=None,
    help="Take what the tool asks meanwhile. Without either: on a terminal, where you are then asked.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON; with --stream a line an event.")
@address_option
def call(
    tool: str,
    pairs: tuple[str, ...],
    whole: str | None,
    batch: str | None,
    stream: bool,
    timeout_s: float | None,
    call_id: str,
    run: str,
    no_wait: bool,
    asks: bool | None,
    as_json: bool,
    address: str | None,
) -> int:
    """Call a tool.

    Values are read as the tool's schema wants them: count=2 is a number where it takes a number and a text where it
    takes a text. tag=a tag=b makes a list. key:=JSON gives any JSON value.

    \b
    Examples:
      fumehood call roll_dice count=2 sides=6
      fumehood call write_file path=notes.txt text='as it is'
      fumehood call roll_dice --args '{"count": 2, "sides": 6}'
      fumehood call word_count --args @request.json --json
      fumehood call slow_job steps=20 --stream          goes on after a lost connection; Ctrl-C cancels it
      fumehood call --batch calls.jsonl --json          answers in the order of the file

    Exit status: 0 done; 1 the tool failed; 2 the call was wrong; 3 the sidecar can't be reached.
    """
    from fumehood.v1 import tool_service_pb2 as pb

    from fumehood_server.cli import output
    from fumehood_server.cli.client import SidecarClient
    from fumehood_server.cli.interrupts import SignalledError, interrupts
    from fumehood_server.cli.streamed_call import streamed

    if batch is not None or not tool:
        _check_batch(batch, alone=not (tool or whole is not None or stream or call_id))
        return _batch(address, batch or "", timeout_s=timeout_s, run=run, no_wait=no_wait, as_json=as_json)
    with SidecarClient(address) as client:
        schema = _schema_for(client, tool, pairs=bool(pairs))
        request = pb.CallToolRequest(
            tool=tool,
            call_id=call_id or f"call-{secrets.token_hex(_ID_BYTES)}",
            arguments_json=_arguments_json(tool, pairs, whole, schema),
            return_if_approval_required=True,
            takes_questions=(sys.stdin.isatty() and sys.stderr.isatty() and not as_json) if asks is None else asks,
        )
        if run:
            request.context.request_id = run
        if timeout_s is not None:
            request.timeout.FromNanoseconds(round(timeout_s * 1e9))
        started: list[str] = [call_id] if call_id else []
        waited = ""
        call_it = (
            functools.partial(streamed, started=started, as_json=as_json and stream, no_wait=no_wait, quiet=not stream)
            if stream or request.takes_questions
            else SidecarClient.call_tool
        )
        try:
            with interrupts() if stream or request.takes_questions else contextlib.nullcontext():
                result = call_it(client, request)
                if result.error.code == _APPROVAL_REQUIRED and not no_wait:
                    waited = approval_of(result)
                    output.note(f"{result.tool} waits to be approved: fumehood approvals approve {waited}")
                    request.return_if_approval_required = False
                    result = call_it(client, request)
        except KeyboardInterrupt as ended:
            tell_cancelled(client, request, waited=waited, named=started)
            return 128 + ended.number if isinstance(ended, SignalledError) else ExitStatus.INTERRUPTED
        if as_json and not stream:
            from fumehood_server.cli import json_output

            output.print_json(json_output.result_json(result))
        elif not as_json:
            _print(result)
            if result.is_error:
                _explain(client, result, waited=waited)
            if sys.stderr.isatty():
                output.say(output.Part(_footer(result), dim=True), err=True)
    return _status(result)


def _check_batch(batch: str | None, *, alone: bool) -> None:
    if batch is None:
        raise click.UsageError("Missing argument 'TOOL'.")
    if not alone:
        raise click.UsageError("--batch takes its calls from the file: no TOOL, arguments, --stream or --call-id.")


def _batch(
    address: str | None, source: str, *, timeout_s: float | None, run: str, no_wait: bool, as_json: bool
) -> ExitStatus:
    from fumehood_server.cli import output
    from fumehood_server.cli.call_batch import read_calls, run_batch
    from fumehood_server.cli.client import SidecarClient

    calls = list(read_calls(source))
    for each in calls:
        if no_wait:  # which needs an id, to send it again by
            each.return_if_approval_required = True
            each.call_id = each.call_id or f"call-{secrets.token_hex(_ID_BYTES)}"
        if run:
            each.context.request_id = run
        if timeout_s is not None:
            each.timeout.FromNanoseconds(round(timeout_s * 1e9))
    try:
        with SidecarClient(address) as client:
            return run_batch(client, calls, as_json=as_json)
    except KeyboardInterrupt:
        output.note("cancelled: those that had no answer were told to stop; what they had done stays done")
        return ExitStatus.INTERRUPTED


_ID_BYTES = 16
_APPROVAL_REQUIRED = "TOOL_APPROVAL_REQUIRED"


def _schema_for(client: SidecarClient, tool: str, *, pairs: bool) -> dict[str, Any]:
    """The schema that types the pairs. Not asked for without pairs: one call is then one request."""
    from fumehood_server.cli.commands.tools import with_near_names
    from fumehood_server.cli.failure import CommandError
    from fumehood_server.cli.output import json_or_text

    if not pairs:
        return {}
    try:
        schema = json_or_text(client.get_tool(tool).definition.input_schema_json)
    except CommandError as error:
        raise with_near_names(error, tool, client) from error
    return schema if isinstance(schema, dict) else {}


def _arguments_json(tool: str, pairs: tuple[str, ...], whole: str | None, schema: dict[str, Any]) -> str:
    import json

    from fumehood_server.cli.arguments import gather_arguments
    from fumehood_server.cli.failure import CommandError

    try:
        arguments = gather_arguments(pairs, whole, schema)
    except CommandError as error:
        error.todo = error.todo or f"Usage: {usage(tool, schema)}"
        raise
    return json.dumps(arguments, ensure_ascii=False)


def _print(result: tool_pb2.ToolResult) -> None:
    """Print what the tool shows on stdout."""
    from fumehood_server.cli import output

    texts: list[str] = []
    for block in result.content:
        named = f"{block.resource_uri}, " if block.resource_uri else ""
        if block.WhichOneof("block") == "blob":
            kind = block.blob.media_type or "application/octet-stream"
            output.note(f"({named}{kind}, {len(block.blob.data):,} bytes; --json prints it)")
        elif not result.is_error:  # an error's message has its texts
            if named:
                output.note(f"({block.resource_uri})")
            texts.append(block.text)
            output.write_content(block.text)
    if not result.is_error:
        details = output.json_or_text(result.details_json)
        if details is not None and not _is_shown(details, texts):
            output.print_json(details)


def _is_shown(details: object, texts: list[str]) -> bool:
    """Whether the texts say all that the structured output does, as MCP has a server say it for clients of before.

    Servers put what is no object into one: `{"result": …}`, and a list's items into a text each.
    """
    from fumehood_server.cli import output

    values = [output.json_or_text(text) for text in texts]
    wrapped = details["result"] if isinstance(details, dict) and details.keys() == {"result"} else details
    same = [value for value in (details, wrapped) if value in values or value in texts]
    return bool(same) or (isinstance(wrapped, list) and bool(texts) and wrapped in (values, texts))


def _footer(result: tool_pb2.ToolResult) -> str:
    from fumehood_server.cli import json_output, output
    from fumehood_server.model.durations import duration_s

    words = [f"{result.tool} {'failed' if result.is_error else 'ok'}"]
    if result.HasField("usage"):
        words.append(f"in {output.seconds(duration_s(result.usage.wall_time))}")
    facts = [" ".join(words), *_used(result.usage), f"call {result.call_id}"]
    facts += [f"{each.pointer or 'the arguments'}: {each.message}" for each in result.coercions]
    if result.HasField("sandbox"):
        layers = [f"{layer.name}{' (weaker)' if layer.weaker else ''}" for layer in result.sandbox.layers]
        facts.append(f"held to {json_output.level_name(result.sandbox.side_effects)} by {', '.join(layers)}")
    return output.one_line("; ".join(facts))


def _used(usage: tool_pb2.Usage) -> list[str]:
    from fumehood_server.cli import output
    from fumehood_server.model.durations import duration_s

    found = []
    if usage.HasField("cpu_time"):
        found.append(f"{output.seconds(duration_s(usage.cpu_time))} of a processor")
    if usage.peak_memory_bytes:
        found.append(f"at most {usage.peak_memory_bytes / 2**20:.0f} MiB")
    return [", ".join(found)] if found else []


_OUT_OF_TIME = frozenset({"TOOL_TIMEOUT", "CANCELLED_TIMEOUT"})

_TODO = {
    "CANCELLED_TIMEOUT": "Give it more with --timeout.",
    "TOOL_UNAVAILABLE": "`fumehood tools NAME` and `fumehood plugin list` say what stands in the way.",
    "TOOL_EXECUTION_FAILED": "",
    "TOOL_RESOURCE_EXHAUSTED": "",
    "TOOL_PROTOCOL_ERROR": "Its author must mend it: `fumehood plugin logs` shows what it wrote.",
    "TOOL_OUTCOME_UNKNOWN": "Look at whether it had its effect before you call it again.",
    "CONFIG_SANDBOX_UNAVAILABLE": "`fumehood doctor` says what this machine lacks and how to get it.",
    "CONFIG_PLUGIN_INVALID": "`fumehood plugin list` says what is wrong with it.",
}


def _explain(client: SidecarClient, result: tool_pb2.ToolResult, *, waited: str = "") -> None:
    """Print why the call failed, and what to do, on stderr. `waited`: the approval that it waited for."""
    from fumehood_server.cli import json_output, output

    error = json_output.error_json(result.error)
    wrong = faults(error)
    what = f"{result.tool} can't take these arguments" if wrong else error["message"]  # the message lists them as well
    not_decided = waited if waited and not result.attempts and error["code"] in _OUT_OF_TIME else ""
    if not_decided:
        what = f"{result.tool} had not begun when its time was over: it waited for an approval"
    lines = [output.hanging(f"{what}  [{error['code']}]")]
    lines.extend(output.hanging(f"  {each['pointer'] or 'all of them'}: {each['message']}") for each in wrong)
    cause = error["caused_by"]
    while cause is not None:
        if cause["message"] not in what:
            lines.append(output.hanging(f"  because: {cause['message']}  [{cause['code']}]"))
        cause = cause["caused_by"]
    if not_decided or error["code"] == _APPROVAL_REQUIRED:
        todo = once_approved(not_decided or approval_of(result), result.call_id)
    else:
        todo = _todo(client, result.tool, error)
    output.say(output.Part("error: ", fg="red", bold=True), "\n".join(lines), err=True)
    if todo:
        output.note(output.hanging(todo))


def faults(error: JsonObject) -> list[JsonObject]:
    """The arguments at fault that an error's details name: `pointer` and `message` of each."""
    details = error["details"]
    if not isinstance(details, dict) or details.get("reason") != "invalid_arguments":
        return []
    for value in details.values():
        if isinstance(value, list) and all(isinstance(each, dict) and "message" in each for each in value):
            return [{"pointer": str(each.get("pointer", "")), "message": str(each["message"])} for each in value]
    return []


def _todo(client: SidecarClient, tool: str, error: JsonObject) -> str:
    from fumehood_server.cli.commands.tools import with_near_names
    from fumehood_server.cli.failure import CommandError

    code = error["code"]
    try:
        if code == "TOOL_NOT_FOUND":
            return with_near_names(CommandError(error["message"], code=code), tool, client).todo
        if faults(error):
            return f"Usage: {usage(tool, _schema_for(client, tool, pairs=True))}"
    except CommandError:  # the sidecar has left since: its answer stands without a hint
        return ""
    again = "It may succeed when it is sent again." if error["retryable"] else ""
    return _todo_by_details(error, again) or _TODO.get(code, again).replace("NAME", tool)


def _todo_by_details(error: JsonObject, again: str) -> str:
    """What to do where one code stands for several things."""
    details = error["details"] if isinstance(error["details"], dict) else {}
    bound = details.get("bound") if error["code"] == "TOOL_TIMEOUT" else None
    if bound == "request":
        return "Give it more with --timeout, up to what the tool and the operator allow."
    if bound == "tool":
        return "Its author can declare more in timeout_s, and the operator allow more in fumehood.toml."
    if details.get("reason") == "elicitation_refused":
        return "It asks for something in the middle of the call: call it on a terminal, or with --ask."
    if error["code"] == "TOOL_UNAVAILABLE" and "phase" in details:
        return f"`fumehood plugin logs {details.get('plugin', '')}` shows what the plugin wrote. {again}".rstrip()
    return ""


def usage(tool: str, schema: dict[str, Any]) -> str:
    """How the tool is called, on one line: `fumehood call roll_dice count=<integer, 1 to 10> [seed=<integer>]`."""
    from fumehood_server.cli.schema import parameters

    words = ["fumehood", "call", tool]
    for each in parameters(schema):
        word = f"{each.name}=<{each.type_text}>"
        words.append(word if each.required else f"[{word}]")
    return " ".join(words)


def _status(result: tool_pb2.ToolResult) -> ExitStatus:
    """What the exit status says of a result: the caller's fault is 2, everything else that failed is 1."""
    from fumehood_server.cli import output

    if not result.is_error:
        return ExitStatus.OK
    details = output.json_or_text(result.error.details_json)
    bad_arguments = isinstance(details, dict) and details.get("reason") == "invalid_arguments"
    callers_fault = bad_arguments or result.error.code == "TOOL_NOT_FOUND"
    return ExitStatus.WRONG if callers_fault else ExitStatus.FAILED
