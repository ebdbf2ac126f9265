"""The backend without namespaces. `start` is its way in; `unavailable` says why it can't be had."""

from fumehood_sandbox.landlock_only.start import start, unavailable

__all__ = ["start", "unavailable"]
