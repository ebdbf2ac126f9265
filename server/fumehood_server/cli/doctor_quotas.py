"""What `fumehood doctor` says of quotas: those that count nothing, by names that nothing has."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fumehood_server.cli.doctor_callers import CallerFinding
from fumehood_server.config import SidecarConfig
from fumehood_server.model.quotas import Per, Quota


def quota_findings(config: SidecarConfig, plugins: Collection[str]) -> Iterator[CallerFinding]:
    """Of the configuration's quotas. `plugins` are the names of its plugins. Nothing where there are no quotas."""
    if not config.quotas:
        return
    callers = {each.name for each in config.callers}
    found = [*config.quotas]
    yield CallerFinding("quotas", "ok", f"{len(found)} counted in the journal: `fumehood policy quotas` shows them")
    for quota in found:
        yield from _idle(quota, callers, plugins, {each.name for each in config.engines})
        if Per.CALLER in quota.per and not callers:
            detail = "counts by caller, and no [[caller]] has a name: all are counted as one"
            yield CallerFinding(f"quota {quota.name}", "note", detail, "name who may call: docs/callers.md")


def _idle(
    quota: Quota, callers: Collection[str], plugins: Collection[str], engines: Collection[str]
) -> Iterator[CallerFinding]:
    for what, named, known in (
        ("[[caller]]", {*quota.callers} - {""}, callers),
        ("[[plugin]]", {*quota.plugins}, plugins),
        ("[[engine]]", {*quota.engines}, engines),
    ):
        missing = sorted(named - {*known})
        if missing:
            detail = f"names {', '.join(missing)}, and no {what} is that"
            yield CallerFinding(f"quota {quota.name}", "note", detail, "mend the name, or leave it out")
