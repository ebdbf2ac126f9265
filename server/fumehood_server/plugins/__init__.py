"""Plugin registry: manifests, definitions, digests, pins, and what each tool is granted."""

from fumehood_server.plugins.availability import AvailabilityScan
from fumehood_server.plugins.catalog import Catalog
from fumehood_server.plugins.check import CheckReport, PinProposal, check_plugin, propose_pin
from fumehood_server.plugins.refusal import PluginRefusedError

__all__ = [
    "AvailabilityScan",
    "Catalog",
    "CheckReport",
    "PinProposal",
    "PluginRefusedError",
    "check_plugin",
    "propose_pin",
]
