"""Every kind of attack by its name: what it is, and the coroutine that goes on with it until its time is up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.soak.arena import Arena
from tests.soak.attacks import callers, connections, egress, plugins, requests, unread, waiting

Attack = Callable[[Arena], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of attack."""

    what: str
    attack: Attack
    stuck_log: bool = False
    """Whether nobody reads the sidecar's log meanwhile."""
    slow_names: bool = False
    """Whether it takes a name server that never answers."""


KINDS = {
    "keys twice": Kind("arguments of 1 MB with the last key twice", callers.keys_twice),
    "many rules": Kind("500 references that look at a text of 1 MB", callers.many_rules),
    "bursts": Kind("4,000 calls at once", callers.bursts),
    "reloads": Kind("a plugin reloaded again and again", callers.reloads),
    "definitions": Kind("definitions that are others at each look, long and costly", callers.definitions),
    "joins": Kind("a call of 0.9 MB asked for a hundred times while it runs", waiting.joins),
    "waits": Kind("300 requests that wait for a call, and 300 for a plugin", waiting.waits),
    "unread results": Kind("1,000 results of 1 MiB that nobody reads", unread.results),
    "unread sessions": Kind("six sessions whose answers nobody reads", unread.sessions),
    "unread updates": Kind("streams of 100,000 updates that nobody reads", unread.updates),
    "half-sent": Kind("600 requests of 1 MB that never end", unread.half_sent),
    "half-sent health": Kind("requests of 2 MB to health that never end, without a token", requests.half_sent_health),
    "full windows": Kind("16,000 requests to health of which 60 KB are sent", requests.full_windows),
    "reflection": Kind("requests to reflection that never end, and answers that nobody reads", requests.reflection),
    "million fields": Kind("requests of a million fields to eight methods", requests.million_fields),
    "million combined": Kind("sessions that combine a million requests in a message", requests.million_combined),
    "idle connections": Kind("more connections than descriptors", connections.idle),
    "followers": Kind("3,000 followers of a plugin's log", connections.followers),
    "empty headers": Kind("frames with two million empty headers or blocks", plugins.empty_fields),
    "many fields": Kind("frames with as many fields as are allowed", plugins.many_fields),
    "details twice": Kind("details of 0.6 MB with the last key twice", plugins.details_twice),
    "updates": Kind("90,000 updates, read as they come", plugins.updates),
    "questions": Kind("a thousand questions a call, answered by what doesn't fit", plugins.questions),
    "costly patterns": Kind("questions with patterns of a million states", plugins.costly_patterns),
    "chatty logs": Kind("lines of control characters, half a million short ones", plugins.chatty),
    "stuck log": Kind("nobody reads the sidecar's stderr", plugins.chatty, stuck_log=True),
    "one-byte chunks": Kind("32 bodies of one-byte chunks", egress.one_byte_chunks),
    "slow names": Kind("two plugins with names that nobody answers for", egress.slow_names, slow_names=True),
}
