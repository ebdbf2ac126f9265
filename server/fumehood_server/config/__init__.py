"""The operator's configuration, fumehood.toml: read, checked and resolved, once and for all."""

from fumehood_server.config.config import PluginConfig, SidecarConfig, find_config, load_config

__all__ = ["PluginConfig", "SidecarConfig", "find_config", "load_config"]
