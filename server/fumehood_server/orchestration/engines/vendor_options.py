"""Which options of a vendor's own a request may have: none that changes what is asked, of whom, or its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_OPTIONS = 64

_NEVER = frozenset(
    (
        # Whom, and what.
        *("model", "models", "provider", "route", "messages", "prompt", "system", "input", "instructions"),
        *("tools", "functions", "mcp_servers", "plugins", "web_search_options", "container", "context_management"),
        *("modalities", "audio", "prediction", "suffix", "echo", "previous_response_id", "conversation"),
        # How much, and for how long.
        *("max_tokens", "max_completion_tokens", "n", "best_of", "n_predict", "service_tier", "background", "store"),
        *("stream", "stream_options", "timeout"),
        # What has a place of its own in a request.
        *("temperature", "top_p", "response_format", "output_format", "output_config", "format"),
        *("grammar", "json_schema", "structured_outputs"),
        # Who asks.
        *("user", "metadata", "extra_headers", "extra_query", "extra_body"),
    )
)


def refused_vendor_option(options: Mapping[str, Any]) -> str:
    """Why these can't be sent. Empty: they can."""
    if len(options) > MAX_OPTIONS:
        return f"there are {len(options)} vendor options, and at most {MAX_OPTIONS} are sent"
    for name in options:
        if name.lower() in _NEVER or name.lower().startswith("guided_"):
            return f'the vendor option "{name[:80]}" is not one that a request may have'
    return ""


__all__ = ["MAX_OPTIONS", "refused_vendor_option"]
