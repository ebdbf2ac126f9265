"""Runs of models in a waterfall: a bar for the run with its states beneath, and one for each try of an inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fumehood_server.cli.journal_bar import Bar
from fumehood_server.cli.journal_run_lines import answer_text, run_ended_text, run_event_text

_INTERRUPTED = "was interrupted"


class RunBars:
    """Draws what lies between events of runs. A run that was interrupted ends there what it had under way."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._runs: dict[str, Bar] = {}
        self._states: dict[str, Bar] = {}
        """The state that each run is in."""
        self._asked: dict[tuple[str, str], Bar] = {}
        """The newest try of each inference, by run and name."""
        self._last_us: dict[str, int] = {}
        """When each run's newest event happened, those of its calls included."""

    def take(self, event: Mapping[str, Any]) -> list[Bar] | None:
        """Draw one event, which comes after those before it, and return the bars that it begins.

        None: it is not about a run as such. It is about a call, or about nothing that is drawn as more than a moment.
        """
        kind, run_id, time_us, data = event["type"], event["run_id"], event["time_us"], event["data"]
        begun = self._of_inference(kind, run_id, time_us, data)
        if begun is None:
            begun = self._of_run(kind, run_id, time_us, data)
        self._last_us[run_id] = time_us
        return begun

    def _of_inference(self, kind: str, run_id: str, time_us: int, data: Mapping[str, Any]) -> list[Bar] | None:
        if kind == "inference_start":
            return [self._ask(run_id, time_us, data)]
        asked = self._asked.get((run_id, data.get("name") or data.get("inference", "")))
        if asked is None:
            return None
        if kind == "inference_end":
            asked.end_us, asked.text = time_us, answer_text(data)
            asked.style = "red" if data["error_code"] else "green"
        elif kind == "run_tool_refused":
            asked.within.append(Bar(time_us, time_us, "  refused", run_event_text(kind, data), style="red"))
        else:
            return None
        return []

    def _of_run(self, kind: str, run_id: str, time_us: int, data: Mapping[str, Any]) -> list[Bar] | None:
        if kind == "run_started":
            run = self._runs[run_id] = Bar(time_us, None, f"run {data['mode']}", "has no end", id=run_id, style="cyan")
            self._enter(run, "INIT", time_us, "")
            return [run]
        found = self._runs.get(run_id)
        if found is None:
            return None
        match kind:
            case "run_resumed":
                self._interrupt(found)
                found.within.append(Bar(time_us, time_us, f"  {kind}", run_event_text(kind, data), style="yellow"))
                self._enter(found, "INIT", time_us, "")
            case "lifecycle_transition":
                self._leave(found, time_us)
                self._enter(found, data["to_state"], time_us, data["reason"])
            case "run_ended":
                found.end_us, found.text = time_us, run_ended_text(data)
                found.style = {"COMPLETE": "green", "CANCELLED": "yellow"}.get(data["state"], "red")
                last = self._states[run_id]
                last.end_us = last.start_us
            case _:
                return None
        return []

    def _ask(self, run_id: str, time_us: int, data: Mapping[str, Any]) -> Bar:
        before = self._asked.get((run_id, data["name"]))
        bar = Bar(time_us, None, data["name"], f"{data['engine']} has not answered", style="cyan")
        if before is not None and before.end_us is not None and data["attempt"] > 1:
            bar.start_us, bar.wait_us = before.end_us, time_us - before.end_us
        self._asked[run_id, data["name"]] = bar
        return bar

    def _enter(self, run: Bar, state: str, time_us: int, reason: str) -> None:
        self._states[run.id] = bar = Bar(time_us, None, f"  {state}", reason, style="blue")
        run.within.append(bar)

    def _leave(self, run: Bar, time_us: int) -> None:
        self._states[run.id].end_us = time_us

    def _interrupt(self, run: Bar) -> None:
        last_us = self._last_us[run.id]
        self._leave(run, last_us)
        for (run_id, _), asked in self._asked.items():
            if run_id == run.id and asked.end_us is None:
                asked.end_us, asked.text, asked.style = last_us, _INTERRUPTED, "yellow"
