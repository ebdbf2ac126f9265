"""The server: the way to it, and what it has said that later messages repeat."""

from __future__ import annotations

from fumehood_sdk.adapters.mcp.remote.relay_connection import RelayConnections
from fumehood_sdk.adapters.mcp.remote.replays import Replays
from fumehood_sdk.adapters.mcp.remote.routing_headers import RoutingHeaders
from fumehood_sdk.adapters.mcp.remote.session import Session
from fumehood_sdk.adapters.mcp.remote.settings import RemoteSettings


class Upstream:
    """What all messages share. For many threads."""

    __slots__ = ("connections", "replays", "routing", "session", "settings")

    def __init__(self, settings: RemoteSettings) -> None:
        """Nothing has been sent."""
        self.settings = settings
        self.connections = RelayConnections(settings)
        self.session = Session()
        self.replays = Replays()
        self.routing = RoutingHeaders()
