"""The operator's configuration and the plugins that it names: read, checked, pinned, looked up."""

from fumehood_server.catalog.availability import AvailabilityScan
from fumehood_server.catalog.catalog import Catalog
from fumehood_server.catalog.check import CheckReport, PinProposal, check_plugin, propose_pin
from fumehood_server.catalog.config import PluginConfig, SidecarConfig, find_config, load_config
from fumehood_server.catalog.loading import PluginRefusedError

__all__ = [
    "AvailabilityScan",
    "Catalog",
    "CheckReport",
    "PinProposal",
    "PluginConfig",
    "PluginRefusedError",
    "SidecarConfig",
    "check_plugin",
    "find_config",
    "load_config",
    "propose_pin",
]
