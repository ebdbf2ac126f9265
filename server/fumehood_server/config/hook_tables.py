"""Schema of `[[hook]]` and `[[middleware]]` of fumehood.toml."""

from __future__ import annotations

from typing import Annotated

from fumehood_sandbox import Level
from pydantic import Field

from fumehood_server.config.tables import Table, one_of
from fumehood_server.model.hooks import Stage, WhenGone

MAX_HOOKS = 64
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class _MatchersTable(Table):
    name: str = Field(pattern=_NAME)
    tools: list[str] = Field(default=[], max_length=1024)
    plugins: list[str] = Field(default=[], max_length=1024)
    side_effects: list[Annotated[Level, one_of(Level, "side-effect level")]] = Field(default=[], max_length=4)
    callers: list[str] = Field(default=[], max_length=1024)


class HookTable(_MatchersTable):
    """`[[hook]]`."""

    stages: list[Annotated[Stage, one_of(Stage, "stage")]] = Field(default=[Stage.BEFORE], min_length=1, max_length=2)
    timeout_s: float = Field(default=5.0, ge=0.01, le=600)
    when_gone: Annotated[WhenGone, one_of(WhenGone, "choice")] = WhenGone.DENY
    served_by: list[str] = Field(default=[], max_length=64)


class MiddlewareTable(_MatchersTable):
    """`[[middleware]]`."""

    timeout_s: float = Field(default=30.0, ge=0.01, le=600)
