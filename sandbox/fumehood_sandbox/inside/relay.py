"""The relay's socket: made in the sandbox's network namespace, handed to the launcher by SCM_RIGHTS."""

import sys

from fumehood_sandbox.inside.report import report
from fumehood_sandbox.kernel.libc import StepError

_RELAY_BACKLOG = 64


def open_relay(status: int, channel_fd: int) -> int:
    """Make the one socket that listens in the network namespace, and hand it to the launcher. Returns its port.

    Nobody inside keeps it: the launcher accepts what connects, so no process of the relay's is in here.
    """
    import _socket  # noqa: PLC0415 - few programs need a relay; socket itself would import much

    try:
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen(_RELAY_BACKLOG)
        port: int = listener.getsockname()[1]
        channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, channel_fd)
        handed = listener.fileno().to_bytes(4, sys.byteorder)
        channel.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed)])
        channel.close()
        listener.close()
    except OSError as error:
        raise StepError("relay", error.strerror or str(error), "", error.errno or 0) from error
    report(status, "layer", "relay", f"127.0.0.1:{port} of an empty network namespace; TCP sockets that connect")
    return port


def proxy_variables(port: int) -> "dict[str, str]":
    """Each name that programs look for. curl reads http_proxy in lower case alone, others the capitals.

    Node's own `fetch` and `https` look at them from 22.21 and 24 on, where they are told to.
    """
    url = f"http://127.0.0.1:{port}"
    found = {"NODE_USE_ENV_PROXY": "1"}
    for name, value in (("HTTP_PROXY", url), ("HTTPS_PROXY", url), ("ALL_PROXY", url), ("NO_PROXY", "")):
        found[name] = found[name.lower()] = value
    return found
