"""The sidecar's metrics, by OpenTelemetry's conventions where there is one for them (RPC, GenAI)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fumehood_server.telemetry.instruments import OTHER, TOKENS, Counter, Family, Gauge, Histogram, Instrument

if TYPE_CHECKING:
    from fumehood_server.telemetry.run_observer import InferenceEnd

TOOL = "gen_ai.tool.name"
_CHAT = "chat"


class SidecarMetrics:
    """Each instrument with what it counts. Written on the event loop; `families` is for any thread.

    The values of attributes are bounded: a tool's name only where it is registered, error codes and reasons from
    closed lists, plugins from the configuration.
    """

    def __init__(self) -> None:
        self.rpc = Histogram(
            "rpc.server.call.duration",
            "Time from a gRPC request to its last answer; of a stream, its whole life.",
            *("rpc.system.name", "rpc.method", "rpc.response.status_code"),
        )
        self.refusals = Counter(
            "fumehood.refusals", "{refusal}", "Requests refused before anything ran.", "fumehood.reason"
        )
        self.executions = Histogram(
            "gen_ai.execute_tool.duration",
            "Time that a call was with its worker. Without error.type: it succeeded.",
            *("gen_ai.operation.name", TOOL, "error.type"),
        )
        self.inferences = Histogram(
            "gen_ai.client.operation.duration",
            "Time that an engine took to answer. Without error.type: it did.",
            *("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "error.type"),
        )
        self.tokens = Histogram(
            "gen_ai.client.token.usage",
            "Tokens that an answer took.",
            *("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.token.type"),
            unit="{token}",
            bounds=TOKENS,
        )
        self.runs = Counter("fumehood.runs", "{run}", "Runs that have ended.", "fumehood.mode", "fumehood.code")
        self.calls = Counter("fumehood.calls", "{call}", "Calls that have ended.", TOOL, "fumehood.code")
        self.wait = Histogram("fumehood.call.wait.duration", "Time from admission until a worker had the call.", TOOL)
        self.in_flight = Gauge("fumehood.calls.in_flight", "{call}", "Calls under way.")
        self.starts = Counter(
            "fumehood.worker.starts", "{process}", "Processes started for plugins.", "fumehood.plugin", "fumehood.kind"
        )
        self.workers = Gauge("fumehood.workers", "{process}", "Workers now.", "fumehood.plugin", "fumehood.state")
        self.loop_longest = Gauge(
            "fumehood.event_loop.longest_step.duration", "s", "Longest time that the event loop was held up."
        )
        self.loop_held_up = Counter(
            "fumehood.event_loop.held_up", "{time}", "Times that the event loop was held up.", "fumehood.above"
        )
        self.journal_queue = Gauge("fumehood.journal.queue", "{event}", "Events that are not on disk yet.")
        self.journal_writable = Gauge("fumehood.journal.writable", "1", "1: the journal can be written. 0: it can't.")
        self.journal_lost = Counter("fumehood.journal.events_lost", "{event}", "Events that were dropped.")
        self.log_dropped = Counter("fumehood.log.lines_dropped", "{line}", "Lines of the sidecar's log dropped.")
        self.plugin_log_dropped = Counter(
            "fumehood.plugin.log.lines_dropped", "{line}", "Lines of plugins' logs dropped.", "fumehood.plugin"
        )
        self.webhook_messages = Counter(
            "fumehood.webhook.messages", "{message}", "Approvals sent to the receiver, each try.", "fumehood.outcome"
        )
        self.webhook_decisions = Counter(
            "fumehood.webhook.decisions",
            "{request}",
            "Requests to the webhook's address.",
            "http.response.status_code",
        )
        self.calls_untraced = Counter(
            "fumehood.telemetry.calls_untraced",
            "{call}",
            "Calls whose spans found no room.",
        )
        self.spans_lost = Counter("fumehood.telemetry.spans_lost", "{span}", "Spans that the collector did not take.")
        self.sample: Callable[[], None] = lambda: None
        """Sets the gauges, and the counters that are kept elsewhere. Called on the event loop."""

    def call_ended(self, tool: str, code: str, wait_s: float | None, run_s: float | None) -> None:
        """One call has ended. `tool` empty: it is no registered tool's name. None: it did not come to that."""
        tool = tool or OTHER
        self.calls.add(tool, code)
        if wait_s is not None:
            self.wait.record(wait_s, tool)
        if run_s is not None:
            self.executions.record(run_s, "execute_tool", tool, "" if code == "OK" else code)

    def inference_ended(self, provider: str, model: str, end: InferenceEnd) -> None:
        """One try of an inference has ended."""
        self.inferences.record(end.took_s, _CHAT, provider, model, "" if end.code == "OK" else end.code)
        if end.code == "OK":
            self.tokens.record(end.input_tokens, _CHAT, provider, model, "input")
            self.tokens.record(end.output_tokens, _CHAT, provider, model, "output")

    def families(self) -> list[Family]:
        """All points as they are now."""
        return [each.family() for each in vars(self).values() if isinstance(each, Instrument)]
