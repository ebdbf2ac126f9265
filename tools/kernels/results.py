"""What came of an entry: collected line by line, judged, and kept as JSON for the table."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.kernels.expected import surprises
from tools.kernels.matrix import FULL, NONE, SHORT, Entry
from tools.kernels.places import RESULTS

_HELD = {"in force", "weaker"}
NO_BACKEND = "none"
_FAILED_TESTS = 1


@dataclass
class RunResult:
    """One service of the guest."""

    name: str
    backend: str = ""
    """The strongest that doctor found usable."""
    weaker: list[str] = field(default_factory=list)
    findings: list[dict[str, str]] = field(default_factory=list)
    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)
    ended: int | None = None
    """pytest's exit status; absent: it was cut short, or not asked for."""
    printed: str = ""
    """The end of what it printed."""

    @property
    def counts(self) -> Counter[str]:
        """How many tests had which outcome."""
        return Counter(outcome for outcome, _ in self.outcomes.values())

    @property
    def missing(self) -> list[str]:
        """What doctor says, in its first sentence, of each check of a sandbox that doesn't hold."""
        return [f"{each['feature']}: {each['detail'].partition('. ')[0]}" for each in self._unheld()]

    def against(self, lacks: tuple[str, ...]) -> list[str]:
        """Where what doctor says of the checks that don't hold, and of their remedies, differs from these parts."""
        said = [f"{each['feature']}: {each['detail']}. {each['remedy']}" for each in self._unheld()]
        silent = [f"doctor doesn't say {part!r}" for part in lacks if not any(part in text for text in said)]
        return silent + [f"doctor says: {text}" for text in said if not any(part in text for part in lacks)]

    def _unheld(self) -> list[dict[str, str]]:
        return [
            each
            for each in self.findings
            if each["area"] in {"sandbox", "landlock"}
            and each["layer"] != "backend"
            and each["status"] not in {*_HELD, "ok"}
        ]


@dataclass
class EntryResult:
    """One boot."""

    name: str
    tests: str = SHORT
    """How much ran there, as for `Entry.given`."""
    kernel: dict[str, Any] = field(default_factory=dict)
    runs: list[RunResult] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    over: bool = False

    def take(self, line: dict[str, Any]) -> str:
        """Take one line of the guest's. Gives a line of progress for people, or nothing."""
        event = line.pop("event")
        if event == "kernel":
            self.kernel = line
            return f"Linux {line['release']}, Landlock ABI {line['landlock_abi']}, lsm={line['lsm']}"
        if event == "run":
            self.runs.append(RunResult(line["run"]))
        elif event == "doctor":
            run = self.runs[-1]
            run.findings = _findings(line["report"])
            run.backend, run.weaker = backend_of(run.findings)
            return f"{run.name}: doctor finds {run.backend}, weaker: {', '.join(run.weaker) or 'nothing'}"
        elif event == "test":
            run = self.runs[-1]
            run.outcomes[line["test"]] = (line["outcome"], line["reason"])
            if line["outcome"] == "failed" or len(run.outcomes) % 10 == 0:
                return f"{run.name}: {len(run.outcomes)} tests, {line['test']}: {line['outcome']}"
        elif event == "end":
            self.runs[-1].ended = line["status"]
        elif event == "printed":
            self.runs[-1].printed = line["text"]
        elif event == "over":
            self.over = True
        elif event == "broken":
            self.problems.append(f"the guest's program: {line['reason']}")
        return ""

    def judge(self, entry: Entry) -> list[str]:
        """Everything that is not as the matrix and expected.toml say."""
        found = list(self.problems)
        if not self.over and not found:
            found.append(f"the guest was off before its end: see {RESULTS / f'{self.name}.console'}")
        for run, wanted in zip(self.runs, entry.runs, strict=False):
            if run.backend != wanted.backend:
                found.append(
                    f"{run.name}: doctor finds {run.backend!r}, not {wanted.backend!r}: {'; '.join(run.missing)}"
                )
            if run.weaker != list(wanted.weaker):
                found.append(f"{run.name}: doctor finds {run.weaker} weaker, not {list(wanted.weaker)}")
            if wanted.backend != "namespaces":
                found.extend(f"{run.name}: {line}" for line in run.against(wanted.lacks))
            if wanted.tests and run.ended not in {0, _FAILED_TESTS}:
                found.append(f"{run.name}: pytest ended with {run.ended}: {run.printed[-1000:]}")
            found.extend(f"{run.name}: {line}" for line in surprises(entry.name, run.name, run.outcomes))
        return found

    def keep(self) -> None:
        """Write it down; again while it is under way, since all tests take hours."""
        unfinished = _place(self.name, self.tests).with_suffix(".new")
        unfinished.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        unfinished.rename(_place(self.name, self.tests))


def kept(name: str, tests: str) -> EntryResult | None:
    """What was written down of an entry that ran so much."""
    path = _place(name, tests)
    if not path.exists():
        return None
    told = json.loads(path.read_text(encoding="utf-8"))
    return EntryResult(**{**told, "runs": [RunResult(**run) for run in told["runs"]]})


def _findings(report: dict[str, Any]) -> list[dict[str, str]]:
    if "findings" not in report:
        raise ValueError(f"doctor did not look: {report}")
    found: list[dict[str, str]] = report["findings"]
    return found


def _place(name: str, tests: str) -> Path:
    """Apart by how much ran, so that a look at some tests isn't taken for what all of them gave."""
    extent = tests if tests in {SHORT, FULL, NONE} else "some"
    return RESULTS / f"{name}.{extent}.json"


def backend_of(findings: list[dict[str, str]]) -> tuple[str, list[str]]:
    """The strongest backend whose every check holds, and its weaker layers."""
    for area, backend in (("sandbox", "namespaces"), ("landlock", "landlock")):
        checks = [each for each in findings if each["area"] == area and each["layer"] != "backend"]
        if checks and all(each["status"] in _HELD for each in checks):
            return backend, sorted({each["layer"] for each in checks if each["status"] == "weaker"})
    return NO_BACKEND, []
