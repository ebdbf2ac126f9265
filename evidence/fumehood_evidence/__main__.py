"""`python -m fumehood_evidence verify FILE --key PUB`: exit status 0 when a bundle proves what it shows, else 1."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from fumehood_evidence.bundle import MAX_BYTES
from fumehood_evidence.errors import EvidenceError
from fumehood_evidence.note import Verifier
from fumehood_evidence.page import read
from fumehood_evidence.verification import Found, verify

_MAX_SHOWN = 500


def main(arguments: list[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m fumehood_evidence", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    checked = commands.add_parser("verify", help="check a bundle offline")
    checked.add_argument("file", type=Path, help="the bundle, as `fumehood journal evidence -o FILE` wrote it")
    checked.add_argument(
        "--key",
        action="append",
        required=True,
        metavar="PUB",
        help="the log's public key, as text or the file journal.pub; may be given again, for a witness",
    )
    checked.add_argument("--json", action="store_true", help="tell it as JSON")
    options = parser.parse_args(arguments)
    try:
        found = verify(read(_page(options.file)), [key for text in options.key for key in _keys(text)])
    except EvidenceError as exc:
        problem = str(exc)
        _say([_json({"proven": False, "problem": problem})] if options.json else [f"NOT PROVEN: {_clipped(problem)}"])
        return 1
    _say([_json({"proven": True, **asdict(found)})] if options.json else _told(found))
    return 0


def _page(path: Path) -> str:
    try:
        if path.stat().st_size > 2 * MAX_BYTES:
            raise EvidenceError(f"{path} has more than {2 * MAX_BYTES:,} bytes")
        return path.read_bytes().decode()
    except OSError as exc:
        raise EvidenceError(f"can't read {path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise EvidenceError(f"{path} is no text") from exc


def _keys(text: str) -> list[Verifier]:
    if "+" in text:
        return [Verifier.parse(text)]
    try:
        lines = Path(text).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise EvidenceError(f"can't read the key {text}: {exc}") from exc
    return [Verifier.parse(line) for line in lines if line.strip()]


def _told(found: Found) -> list[str]:
    lines = [
        "PROVEN by the keys given:",
        f"  {found.events} events are in the log {found.log}, as shown, among {found.size:,} that it signed for",
        *(
            f"  call {call.call_id} of {call.tool}: all its {call.events} events, outcome {call.outcome or 'not yet'}"
            for call in found.calls
        ),
        f"  {found.payloads} arguments and results, and {found.documents} documents, are those that the events name",
    ]
    if found.earlier:
        lines.append(f"  the log only grew since {found.earlier} earlier checkpoints")
    lines += [
        f"  {each.name} signed" + ("" if each.time is None else f" as a witness at {each.time}")
        for each in found.signatures
    ]
    lines += ["NOT PROVEN by this file:", *(f"  {each}" for each in found.not_proven)]
    return lines


def _json(told: Mapping[str, object]) -> str:
    return json.dumps(told).replace("\x7f", "\\u007f")  # the one control character that it leaves as it is


def _clipped(problem: str) -> str:
    """As much of it as leaves the verdict in front of it on the screen: a bundle's own texts are within."""
    return problem if len(problem) <= _MAX_SHOWN else f"{problem[:_MAX_SHOWN]}…"


def _say(lines: Sequence[str]) -> None:
    """Print lines whose texts may be a forger's: none begins another line, or steers the terminal."""
    encoding = sys.stdout.encoding or "utf-8"  # a text in memory has none
    for line in lines:
        shown = "".join(each if each.isprintable() else f"\\u{{{ord(each):x}}}" for each in line)
        sys.stdout.write(shown.encode(encoding, "backslashreplace").decode(encoding) + "\n")


if __name__ == "__main__":
    sys.exit(main())
