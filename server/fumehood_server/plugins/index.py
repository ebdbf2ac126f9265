"""Index of the registrations that are in force: by tool, by plugin, by folder."""

from __future__ import annotations

from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.text import printable
from fumehood_server.plugins.registration import Registration


class RegistrationIndex:
    """All registrations of one moment, and what finds them. Immutable: a change is another index, in force at once."""

    def __init__(self, registrations: tuple[Registration, ...] = ()) -> None:
        """Index `registrations`, which are in the order of the configuration."""
        self.registrations = registrations
        self._by_tool = {
            tool.name: (tool, registration)
            for registration in registrations
            for tool in registration.plugin.callable_tools
        }
        listed = {tool.name for registration in registrations for tool in registration.plugin.tools}
        self.tools: tuple[RegisteredTool, ...] = tuple(self._by_tool[name][0] for name in sorted(listed))
        """Every tool that is listed, sorted by name."""
        self.waiting = tuple(each for each in registrations if each.waits_for_program)
        """Those whose program isn't installed."""
        by_folder = {printable(each.plugin.path): each for each in registrations}
        by_name = {each.plugin.name: each for each in reversed(registrations)}
        # Of two with one name, the accepted one, whatever their order.
        holding = {each.plugin.name: each for each in registrations if each.plugin.kind is not None}
        self._by_plugin = by_folder | by_name | holding

    def tool(self, name: str) -> tuple[RegisteredTool, Registration] | None:
        """The tool of this name, listed or not, with its plugin's registration."""
        return self._by_tool.get(name)

    def plugin(self, name: str) -> Registration | None:
        """The plugin of this name (of two, the accepted one), or of this folder, as it is shown."""
        return self._by_plugin.get(name)

    def replaced(self, old: Registration, new: Registration) -> RegistrationIndex:
        """An index with `new` in the place of `old`."""
        return RegistrationIndex(tuple(new if each is old else each for each in self.registrations))
