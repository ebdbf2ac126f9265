"""The limit on open descriptors (RLIMIT_NOFILE), and how many connections fit below it."""

from __future__ import annotations

import resource

OWN_DESCRIPTORS = 256
"""Kept from connections, for what the sidecar itself opens: its loop, its log, some 30 workers and what each needs to
start. More workers live on the half that connections never get."""

_MOST = 65_536
"""More than that nobody needs, and who inherits the limit may walk over all of it."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one. Returns what holds then.

    Plugins don't see it: each gets the limit that its policy says.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _MOST if soft == resource.RLIM_INFINITY else soft


def connections_that_fit(wanted: int, addresses: int, descriptors: int) -> int:
    """How many connections each of so many addresses may have: `wanted`, or what half of the descriptors allows."""
    share = min(descriptors // 2, descriptors - OWN_DESCRIPTORS)
    return max(1, min(wanted, share // addresses))
