"""The SDK's session manager, of whose sessions one caller leaves others room."""

from __future__ import annotations

from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from fumehood_server.mcp.places import share_of


class SharedSessionManager(StreamableHTTPSessionManager):
    """Refuses a session above a caller's share as it does one above the bound. Callers without a token share one."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if requestor is None:
            held = len(self._server_instances) - len(self._session_owners)
        else:
            held = sum(owner == requestor for owner in self._session_owners.values())
        if self.max_sessions is not None and held >= share_of(self.max_sessions):
            return None
        return super()._admit_session(requestor)
