"""Name of the image that a container engine's command line runs, where it is told for certain from options' values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fumehood_server.cli.mcp_import.secret_values import formed_like_a_secret

_MAX = 255
_REFERENCE = re.compile(
    r"(?:[a-zA-Z0-9.-]+(?::\d{1,5})?/)?[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
"""By the grammar of the OCI distribution specification: registry, repository, tag and digest."""
_FLAG = re.compile(
    r"-[ditPq]+|--(?:detach|interactive|tty|rm|init|privileged|read-only|publish-all|quiet|no-healthcheck|replace"
    r"|oom-kill-disable|sig-proxy|disable-content-trust|rmi)"
)
_VALUED = re.compile(
    r"-[evphwulmca]|--(?:env|env-file|volume|mount|tmpfs|volumes-from|name|publish|expose|network|net"
    r"|network-alias|ip|dns|add-host|hostname|workdir|entrypoint|user|group-add|label|label-file|memory"
    r"|memory-swap|shm-size|cpu-shares|cpus|cpuset-cpus|pids-limit|ulimit|gpus|device|cap-add|cap-drop"
    r"|security-opt|platform|pull|restart|ipc|pid|uts|userns|cgroupns|runtime|log-driver|log-opt|stop-signal"
    r"|sysctl|stop-timeout|cidfile|attach|annotation|health-cmd|secret|authfile)"
)


def container_image(arguments: Sequence[str]) -> str:
    """The image that `run` starts. Empty: it can't be told, as behind an option that isn't known here."""
    rest = list(arguments)
    if rest[:1] == ["container"]:
        rest.pop(0)
    if rest[:1] not in (["run"], ["create"]):
        return ""
    rest.pop(0)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if "=" in option or _FLAG.fullmatch(option):
            continue
        if not _VALUED.fullmatch(option):
            return ""
        rest = rest[1:]
    image = rest[0] if rest else ""
    is_one = len(image) <= _MAX and _REFERENCE.fullmatch(image) and not formed_like_a_secret(image)
    return image if is_one else ""
