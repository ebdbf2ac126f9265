"""The public names of the server and of the protocol, pinned. Sandbox and SDK pin theirs beside their own tests."""

from __future__ import annotations

import importlib
import pkgutil

import fumehood.v1
import pytest
from fumehood.v1 import (
    approval_service_pb2,
    hook_service_pb2,
    journal_service_pb2,
    mcp_service_pb2,
    orchestration_service_pb2,
    plugin_service_pb2,
    tool_service_pb2,
)

SERVER = {
    "callers": {
        "Authenticator", "CallerRules", "CertificateError", "CertificateFiles", "Presented", "TokenFileError",
        "TokenStore", "expiry_of", "read_certificates",
    },
    "calls": {"Call", "Entry", "Executor", "JoinedCall", "NoVerdictError", "UpdateReader"},
    "cli": {"main"},
    "egress": {
        "MAX_PIECE_BYTES", "Access", "RequestOrigin", "CurrentOrigin", "EgressBroker", "EgressError", "EgressEvent",
        "EgressFailedError", "EgressLimits", "EgressRefusedError", "EgressRequest", "EgressResponse", "EventSink",
        "Headers", "Hop", "HostEntry", "HostEntryError", "HostRules", "Outcome", "OwnListeners", "Reason",
        "RelayServer", "access_for", "import_broker", "log_event", "open_broker", "open_relay", "parse_denied",
        "parse_granted", "parse_private", "parse_url",
    },
    "config": {"PluginConfig", "SidecarConfig", "find_config", "load_config"},
    "hooks": {
        "HookChain", "HookConnection", "HookRegistry", "LoadedMiddleware", "Question", "UnaskedError",
        "load_middleware",
    },
    "middleware": {"Annotations", "Call", "Content", "Denied", "Failure", "Middleware", "Next", "Result"},
    "orchestration.plans": {
        "ExecutionPlan", "OutputChecks", "OutputVerdict", "PlanTrace", "check_plan", "parse_plan",
    },
    "plugins": {
        "AvailabilityScan", "Catalog", "CheckReport", "PinProposal", "PluginRefusedError", "check_plugin",
        "propose_pin",
    },
    "rpc": {
        "Admission",
        "ConnectionSettings",
        "ListenFailedError",
        "RefusalRecords",
        "RequestReader",
        "ResultWriter",
        "ServedCertificates",
        "ServerContext",
        "Serving",
        "UnreadAnswers",
        "connections_that_fit",
        "disconnect_unread",
        "make_socket_folder",
        "raise_descriptor_limit",
        "serving",
    },
    "secrets": {"Redactor", "SecretSource", "SecretStore", "SecretUnavailableError"},
    "telemetry": {
        *("CallObserver", "EngineLabel", "InferenceEnd", "LoopFigures", "LoopWatchdog", "RunObserver"),
        *("SidecarMetrics", "Telemetry", "TelemetrySettings"),
        *("TraceStarter", "call_lines", "configure_logging", "get_logger", "log_lines_dropped", "open_telemetry"),
    },
    "workers": {
        "LogLine", "LogSink", "LogSubscription", "PluginLog", "Pools", "ReadyInfo", "WorkerSettings", "describe",
    },
    "workers.wire": {"MAX_LENGTH_BYTES", "FrameDecoder", "FrameError", "FrameFault", "prefixed"},
}  # fmt: skip
SERVICES = {
    "ApprovalService": {
        "ListApprovals", "WatchApprovals", "DecideApproval", "ListStandingApprovals", "RevokeStandingApproval",
    },
    "HookService": {"Intercept", "ListHooks"},
    "OrchestrationService": {"Run", "StreamRun", "SteerRun", "CancelRun"},
    "McpService": {
        "ListMcpServers", "ListResources", "ListResourceTemplates", "ReadResource", "ListPrompts", "GetPrompt",
    },
    "ToolService": {
        "ListTools", "GetTool", "CheckAvailability", "CallTool", "StreamTool", "CallTools", "Session",
        "AnswerQuestion", "CancelCall", "GetCall", "ResolveCall",
    },
    "PluginService": {
        "ListPlugins", "GetPlugin", "ReloadPlugin", "EnablePlugin", "DisablePlugin", "ReloadConfig",
        "CompareConfig", "TailPluginLogs",
    },
    "JournalService": {"ListEvents", "WatchEvents", "VerifyJournal", "ReplayRun", "ForkRun"},
}  # fmt: skip


@pytest.mark.parametrize("package", SERVER)
def test_the_servers_parts_export_these(package: str) -> None:
    module = importlib.import_module(f"fumehood_server.{package}")
    assert set(module.__all__) == SERVER[package]
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_the_protocol_has_these_modules_and_services() -> None:
    described = {
        *("approval_service", "hook_service", "journal_service", "mcp_service"),
        *("orchestration_service", "plugin_service", "tool_service"),
    }
    messages = {"content", "error", "plugin", "tool"} | described
    modules = {f"{name}_pb2" for name in messages} | {f"{name}_pb2_grpc" for name in described}
    assert {each.name for each in pkgutil.iter_modules(fumehood.v1.__path__)} == modules
    found = {
        name: {method.name for method in service.methods}
        for module in (
            tool_service_pb2,
            plugin_service_pb2,
            journal_service_pb2,
            approval_service_pb2,
            hook_service_pb2,
            orchestration_service_pb2,
            mcp_service_pb2,
        )
        for name, service in module.DESCRIPTOR.services_by_name.items()
    }
    assert found == SERVICES
