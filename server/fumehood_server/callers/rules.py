"""Access rules: which tools each `[[caller]]` may list, call and approve. What no rule allows is denied."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fumehood_server.config.callers import CallerConfig
from fumehood_server.config.listen import Listen
from fumehood_server.model.caller import Caller

_MAX_NAME_CHARS = 256


@dataclass(frozen=True, slots=True)
class _Rules:
    call: re.Pattern[str]
    listing: re.Pattern[str]
    approve: re.Pattern[str]
    operator: bool


class CallerRules:
    """The rules in force. For one event loop. See `model.caller.CallerRights` for what it answers.

    A caller without a name came by an address that asks for none, where nothing was said of who comes by it: it may do
    everything, as on a sidecar that names no callers. One that came by no address may do nothing.
    """

    __slots__ = ("_addresses", "_certificates", "_rules")

    def __init__(self, callers: Sequence[CallerConfig] = ()) -> None:
        """Those of the configuration."""
        self._rules: Mapping[str, _Rules] = {}
        self._certificates: Mapping[str, str] = {}
        self._addresses: Mapping[Listen, str] = {}
        self.take_up(callers)

    def take_up(self, callers: Sequence[CallerConfig]) -> None:
        """Let these rules hold from now on, for calls under way as well where they are asked."""
        self._rules = {
            each.name: _Rules(
                call=_any_of(each.tools),
                listing=_any_of((*each.tools, *each.list_only)),
                approve=_any_of(each.approve),
                operator=each.operator,
            )
            for each in callers
        }
        self._certificates = {each.certificate: each.name for each in callers if each.certificate}
        self._addresses = {each.listen: each.name for each in callers if each.listen is not None}

    def knows(self, name: str) -> bool:
        """Whether there is a caller of this name."""
        return name in self._rules

    def of_certificate(self, names: Iterable[str]) -> frozenset[str]:
        """The callers whose certificate has one of these names. More than one can't be told apart."""
        return frozenset(caller for each in names if (caller := self._certificates.get(each)) is not None)

    def of_address(self, listen: Listen) -> str:
        """The caller that everybody is who comes by this address. Empty: none."""
        return self._addresses.get(listen, "")

    def may_list(self, caller: Caller, tool: str) -> bool:
        """See `CallerRights`."""
        if not caller.name:
            return bool(caller.connection)
        rules = self._rules.get(caller.name)
        return rules is not None and _matches(rules.listing, tool)

    def may_call(self, caller: Caller, tool: str) -> bool:
        """See `CallerRights`."""
        if not caller.name:
            return bool(caller.connection)
        rules = self._rules.get(caller.name)
        return rules is not None and _matches(rules.call, tool)

    def may_approve(self, caller: Caller, tool: str) -> bool:
        """See `CallerRights`."""
        if not caller.name:
            return bool(caller.connection)
        rules = self._rules.get(caller.name)
        return rules is not None and _matches(rules.approve, tool)

    def is_operator(self, caller: Caller) -> bool:
        """See `CallerRights`."""
        if not caller.name:
            return bool(caller.connection)
        rules = self._rules.get(caller.name)
        return rules is not None and rules.operator


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Alternatives, of which each matches in linear time: fnmatch's own translation has atomic groups."""
    return re.compile("|".join(map(fnmatch.translate, sorted(set(patterns)))) or r"(?!)")


def _matches(pattern: re.Pattern[str], tool: str) -> bool:
    # A caller may name a tool as long as it likes.
    return len(tool) <= _MAX_NAME_CHARS and pattern.fullmatch(tool) is not None
