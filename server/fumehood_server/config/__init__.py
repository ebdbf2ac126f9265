"""The operator's configuration, fumehood.toml: parsed, checked and resolved at start."""

from fumehood_server.config.config import PluginConfig, SidecarConfig
from fumehood_server.config.load import find_config, load_config

__all__ = ["PluginConfig", "SidecarConfig", "find_config", "load_config"]
