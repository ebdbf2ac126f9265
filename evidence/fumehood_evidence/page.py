"""A bundle as an HTML page: what was recorded, for people, and the data for whoever checks it."""

from __future__ import annotations

import html
import json
from datetime import UTC, datetime
from typing import Any

from fumehood_evidence.bundle import Bundle, parse
from fumehood_evidence.checkpoint import Checkpoint
from fumehood_evidence.errors import EvidenceError

_OPEN, _CLOSE = '<script type="application/json" id="bundle">', "</script>"
_MAX_SHOWN = 2_000
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #ddd}
code,pre{font:13px ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
h1{font-size:1.4rem}h2{font-size:1.1rem}
""".strip()

_VALUES = (
    "<p>What <code>execute_values</code> holds is what the tool's own process said that it took from outside. HTTP "
    "responses among it were compared with those that the sidecar gave to the call: <code>unconfirmed</code> counts "
    "the others.</p>"
)


def render(bundle: Bundle) -> str:
    """The page. The same data give the same page, byte for byte."""
    kind, value = next(iter(bundle.subject.items()))
    title = f"{'Call' if kind == 'call_id' else 'Run'} {value}"
    checkpoint = Checkpoint.parse(bundle.checkpoint.partition("\n\n")[0] + "\n")
    rows = "".join(_row(event.position, event.body) for event in bundle.events)
    payloads = "".join(
        f"<h2>Record {position}</h2><pre>{_shown(data)}</pre>"
        for position, parts in sorted(bundle.payloads.items())
        for data in parts.values()
    )
    documents = "".join(
        f"<h2>Document <code>{_text(digest)}</code></h2><pre>{_shown(data)}</pre>"
        for digest, data in sorted(bundle.documents.items())
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{_text(title)}</h1>"
        f"<p>From the log <code>{_text(checkpoint.origin)}</code>, whose checkpoint here covers {checkpoint.size:,} "
        "records. This page proves nothing by being read: check it with "
        "<code>python -m fumehood_evidence verify FILE --key PUB</code>.</p>"
        f"{_VALUES if any(_is_values(event.body) for event in bundle.events) else ''}"
        f"<table><tr><th>Record</th><th>Time (UTC)</th><th>Event</th><th>What</th></tr>{rows}</table>"
        f"{payloads}{documents}\n{_OPEN}{bundle.to_json()}{_CLOSE}\n</body></html>\n"
    )


def _is_values(body: bytes) -> bool:
    return b'"execute_values"' in body


def read(page: str) -> Bundle:
    """The data of a page, which must be the page of these data.

    Raises:
        EvidenceError: it is no page of a bundle, or another's.
    """
    start = page.rfind(_OPEN)
    end = page.find(_CLOSE, start)
    if start < 0 or end < 0:
        raise EvidenceError("the file is no bundle: it holds no data")
    bundle = parse(page[start + len(_OPEN) : end])
    if render(bundle) != page:
        raise EvidenceError("the page does not show its own data: it was changed")
    return bundle


def _row(position: int, body: bytes) -> str:
    try:
        event: dict[str, Any] = json.loads(body)
        time = datetime.fromtimestamp(int(event["time_us"]) / 1e6, UTC).isoformat(sep=" ", timespec="milliseconds")
        what = ", ".join(f"{name}: {json.dumps(value)}" for name, value in sorted(event["data"].items()))
        cells = (str(position), time.removesuffix("+00:00"), str(event["type"]), f"{event.get('tool', '')} {what}")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError, RecursionError):
        cells = (str(position), "", "", "is no event")
    return "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>"


def _shown(data: bytes) -> str:
    text = data[:_MAX_SHOWN].decode("utf-8", "backslashreplace")
    more = f"\n… {len(data) - _MAX_SHOWN:,} more bytes" if len(data) > _MAX_SHOWN else ""
    return _text(text + more)


def _text(text: str) -> str:
    """Escaped for HTML, and what is invisible or steers a reader's eyes by its number."""
    return html.escape(
        "".join(each if each.isprintable() or each == "\n" else f"\\u{{{ord(each):x}}}" for each in text)
    )
