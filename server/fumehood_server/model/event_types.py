"""The closed list of what the journal records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from fumehood_server.model import (
    approval_events,
    events,
    forks,
    hook_events,
    operation_events,
    question_events,
    quota_events,
    run_events,
    standing_events,
)
from fumehood_server.model.events import Event

EVENTS: Mapping[str, type[Event]] = {
    each.TYPE: each
    for each in (
        events.SidecarStarted,
        events.SidecarStopped,
        events.ExecuteStart,
        approval_events.ApprovalRequested,
        approval_events.ApprovalDecided,
        approval_events.ApprovalWithdrawn,
        approval_events.ApprovalExpired,
        approval_events.ApprovalUsed,
        standing_events.StandingGranted,
        standing_events.StandingUsed,
        standing_events.StandingRevoked,
        hook_events.HookDecided,
        quota_events.QuotaRefused,
        events.ExecuteAttempt,
        events.ExecuteValues,
        events.ExecuteRetry,
        events.ExecuteTakenOver,
        events.CancelRequested,
        events.EgressRequested,
        question_events.QuestionAsked,
        question_events.QuestionAnswered,
        events.SecretRequested,
        events.LimitReached,
        events.ExecuteEnd,
        events.ExecuteCancelled,
        events.OutcomeResolved,
        forks.RunForked,
        forks.OutcomeServed,
        run_events.RunStarted,
        run_events.RunResumed,
        run_events.LifecycleTransition,
        run_events.InferenceStart,
        run_events.InferenceEnd,
        run_events.CallInferenceStart,
        run_events.CallInferenceEnd,
        run_events.RunToolRefused,
        run_events.RunSteered,
        run_events.RunSteeringTaken,
        run_events.RunEnded,
        run_events.SessionTurn,
        events.EventsLost,
        events.PayloadsPruned,
        events.EventsPruned,
        operation_events.RequestRefused,
        operation_events.RequestsRefused,
        operation_events.EgressCounted,
        operation_events.WorkerStarted,
        operation_events.WorkerEnded,
        operation_events.WorkerStartFailed,
        operation_events.PluginPinned,
        operation_events.PluginChanged,
        operation_events.PluginDisabled,
        operation_events.PluginEnabled,
        operation_events.ConfigurationLoaded,
        operation_events.ConfigurationReloaded,
    )
}
"""By the type that each is written with."""

PAYLOADS: Mapping[str, str] = {
    name: field.name for name, each in EVENTS.items() for field in fields(each) if "Digested" in str(field.type)
}
"""The field of each type of event that names what lies beside it. None has two."""
