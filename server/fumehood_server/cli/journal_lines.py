"""Events as lines for people, and as objects for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fumehood_server.cli.journal_run_lines import run_event_text

if TYPE_CHECKING:
    from fumehood_server.cli.journal_filter import Chosen
    from fumehood_server.journal.query import Span
    from fumehood_server.journal.store import Reader, StoredEvent

_STYLES = {
    "execute_start": "cyan",
    "limit_reached": "red",
    "events_lost": "red",
    "outcome_resolved": "yellow",
    "outcome_served": "yellow",
}


def selected(reader: Reader, wanted: Chosen, span: Span) -> Iterator[StoredEvent]:
    """All events of a span that are wanted, some hundred at a time in memory."""
    from fumehood_server.journal.query import Bounds

    query, bounds = wanted.query(), Bounds(events=1_000, body_bytes=4 * 1024 * 1024)
    rest: Span | None = span
    while rest is not None:
        found = reader.search(query, rest, bounds)
        yield from found.events
        rest = found.rest


def event_json(position: int, body: bytes | str) -> dict[str, Any]:
    """An event as `--json` prints it: as it was hashed, with its position."""
    import orjson

    return {"position": position, "event": orjson.loads(body)}


def print_line(position: int, fields: Mapping[str, Any]) -> None:
    """Print one line: UTC time, position, type, tool, and what it says."""
    from fumehood_server.cli.output import Part, one_line, say
    from fumehood_server.model.text import visible_line

    clock = datetime.fromtimestamp(fields["time_us"] / 1e6, UTC).strftime("%H:%M:%S.%f")[:-3]
    colour = _STYLES.get(fields["type"])
    error = fields["data"].get("error")
    if fields["type"] in {"execute_end", "execute_cancelled"}:
        colour = "green" if error is None else "red"
    tool = f" {fields['tool']}" if fields["tool"] else ""
    call = f" {fields['call_id']}" if fields["call_id"] else ""
    say(
        Part(visible_line(f"{clock} {position:>8} "), dim=True),
        Part(visible_line(f"{fields['type']:<17}"), fg=colour),
        Part(visible_line(tool), bold=True),
        Part(visible_line(call), dim=True),
        visible_line(f" {one_line(what_happened(fields))}"),
    )


def what_happened(fields: Mapping[str, Any]) -> str:  # noqa: PLR0911 - one return a type
    """What an event says beside its type and its call, in a few words."""
    from fumehood_server.cli.output import seconds

    data = fields["data"]
    match fields["type"]:
        case "execute_start":
            return str(data["side_effects"] or "no tool")
        case "execute_attempt":
            return f"attempt {data['attempt']} on {data['worker_id']}"
        case "execute_retry":
            return (
                f"attempt {data['attempt']} failed, again in {seconds(data['delay_us'] / 1e6)}: {data['error']['code']}"
            )
        case "execute_end" | "execute_cancelled":
            took = seconds(data["wall_us"] / 1e6) if data["wall_us"] else ""
            return ", ".join(filter(None, (outcome_text(data), took)))
        case "egress":
            hosts = " → ".join(f"{hop['host']}:{hop['port']} {hop['status'] or ''}".strip() for hop in data["hops"])
            return " ".join(filter(None, (data["method"], hosts, data["outcome"], data["reason"])))
        case "secret_requested":
            return f"{data['name']} {data['refused'] or 'handed over'}"
        case "limit_reached":
            told = "" if data["value"] is None else f" of {data['value']:g} {data['unit']}"
            return f"{data['limit']}{told}"
        case "run_forked":
            return f"goes on from event {data['position']} of {data['source_run']}"
        case "outcome_served":
            return f"{data['call_id']} got the recorded outcome of {data['source_call_id']}: {data['outcome']}"
        case _:
            told = _of_approval(fields["type"], data) or run_event_text(fields["type"], data)
            return told or ", ".join(_pairs(data.items()))


def _of_approval(kind: str, data: Mapping[str, Any]) -> str:
    match kind:
        case "approval_requested":
            return f"{data['approval_id']} by {', '.join(data['rules'])}"
        case "approval_decided" | "approval_withdrawn":
            who = data["by"] or f"{data['connection']} (no name)"
            return " ".join(filter(None, (data.get("choice", "withdraw"), "by", who, data["reason"])))
        case "approval_expired":
            return f"{data['approval_id']}, which was {data['was']}"
        case "quota_refused":
            return f"{data['quota']}: {data['used']} of {data['limit']} used, {data['wanted']} wanted"
        case "approval_used":
            return str(data["approval_id"])
        case _:
            return _of_standing(kind, data) or _of_question(kind, data)


def _of_question(kind: str, data: Mapping[str, Any]) -> str:
    match kind:
        case "question_asked":
            told = f", {data['approval_id']}" if data["approval_id"] else ""
            return f"{data['question_id']}: {data['refused'] or 'asks the ' + data['asked']}{told}"
        case "question_answered":
            who = f" by {data['by']}" if data["by"] else ", nobody answered"
            return f"{data['question_id']}: {data['action']}{who}"
        case _:
            return ""


def _of_standing(kind: str, data: Mapping[str, Any]) -> str:
    match kind:
        case "standing_approval_granted" | "standing_approval_revoked":
            who = data["by"] or f"{data['connection']} (no name)"
            return " ".join(filter(None, (data["standing_id"], "by", who, data["reason"])))
        case "standing_approval_used":
            return f"{data['standing_id']}, given with {data['granted_with']}"
        case _:
            return ""


def outcome_text(data: Mapping[str, Any]) -> str:
    """How a call ended, by the data of its end."""
    from fumehood_server.cli.output import plural

    error = data["error"]
    updates = f", {plural(data['updates'], 'update')}" if data["updates"] else ""
    return f"OK{updates}" if error is None else f"{error['code']}{updates}: {error['message']}"


def _pairs(items: Iterable[tuple[str, object]]) -> Iterator[str]:
    for name, value in items:
        if value not in (None, "", [], {}):
            yield f"{name}={value}"
