"""The plugins that the configuration names: read, checked, pinned, looked up."""

from fumehood_server.plugins.availability import AvailabilityScan
from fumehood_server.plugins.catalog import Catalog
from fumehood_server.plugins.check import CheckReport, PinProposal, check_plugin, propose_pin
from fumehood_server.plugins.loading import PluginRefusedError

__all__ = [
    "AvailabilityScan",
    "Catalog",
    "CheckReport",
    "PinProposal",
    "PluginRefusedError",
    "check_plugin",
    "propose_pin",
]
