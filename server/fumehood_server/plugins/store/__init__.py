"""Content-addressed store of plugins: verified, read-only copies that run in place of the authors' folders."""

from fumehood_server.plugins.store.copies import CopyDamagedError, PluginStore, temporary_store
from fumehood_server.plugins.store.digest import copy_digest, folder_digest
from fumehood_server.plugins.store.interface import PluginSources, Stored
from fumehood_server.plugins.store.live_folders import LiveFolders

__all__ = [
    "CopyDamagedError",
    "LiveFolders",
    "PluginSources",
    "PluginStore",
    "Stored",
    "copy_digest",
    "folder_digest",
    "temporary_store",
]
