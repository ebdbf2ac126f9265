"""Entry point of kind `mcp`, which the sidecar starts as `python -m fumehood_sdk.adapters.mcp.main LAUNCH`.

LAUNCH is a JSON object: `command`, the server's program and arguments, the program as an absolute path, or "python" for
this interpreter; `environment`, what is added to this process's own; `secrets`, names of variables, each with the name
of the secret whose value `Hello` brings for it. Or, for a server over HTTP: `url`; `headers`, names of header fields
and their values; `secret_headers`, names of header fields, each with the name of a secret and what stands before it;
`authorities`, a file with those that are trusted in place of the system's, which may be empty.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from fumehood_sdk.adapters.mcp.connection import ServerConnection
from fumehood_sdk.adapters.mcp.definitions import encode_definitions
from fumehood_sdk.adapters.mcp.engine import McpEngine
from fumehood_sdk.adapters.mcp.faults import ServerFault
from fumehood_sdk.adapters.mcp.listing import list_tools
from fumehood_sdk.adapters.mcp.log_lines import LogLines
from fumehood_sdk.adapters.mcp.negotiation import Session, negotiate
from fumehood_sdk.adapters.mcp.server_process import ServerProcess
from fumehood_sdk.errors import WireError
from fumehood_sdk.runtime.descriptors import take_wire
from fumehood_sdk.runtime.hello import DEFAULT_MAX_CALLS, DEFAULT_MAX_FRAME_BYTES, PROTOCOL_VERSION, SDK, read_hello
from fumehood_sdk.wire import plugin_frames, sidecar_frames
from fumehood_sdk.wire.framing import FrameReader

UNKNOWN_SECRET = "fumehood-placeholder"  # noqa: S105 - no secret
"""In place of a secret while a server is asked for its tools, which it is without a grant: many don't start without."""
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")
_USAGE = 2


def main(arguments: list[str]) -> int:
    """Serve the server that the argument names. Returns the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m fumehood_sdk.adapters.mcp.main LAUNCH\n")
        return _USAGE
    fd_in, fd_out = take_wire()
    for fd in (fd_in, fd_out):
        os.set_blocking(fd, True)
    frames = FrameReader(lambda size: os.read(fd_in, size), DEFAULT_MAX_FRAME_BYTES)
    server: list[ServerProcess] = []
    try:
        hello = read_hello(frames)
        if hello is None:
            return 0
        frames.max_frame_bytes = hello.max_frame_bytes or DEFAULT_MAX_FRAME_BYTES
        grace_s = _serve(json.loads(arguments[0]), hello, frames, (fd_in, fd_out), server)
    except (ServerFault, WireError, OSError) as error:
        for each in server:
            each.kill()  # what is said last is what the sidecar tells
        sys.stderr.write(f"fumehood-sdk: {error}\n")
        sys.stderr.flush()
        return 1
    server[-1].end(grace_s)
    return 0


def _serve(
    launch: dict[str, Any],
    hello: sidecar_frames.Hello,
    frames: FrameReader,
    fds: tuple[int, int],
    started: list[ServerProcess],
) -> float:
    roots = _roots(hello) if "url" not in launch else '{"roots":[]}'  # whose folders are not these
    log = LogLines()
    connection, session = _connect(launch, hello, roots, log, started)
    session.is_remote = "url" in launch
    tools = encode_definitions(list_tools(connection, session), session.server)
    sdk = f"{SDK} mcp/{session.revision}"
    ready = plugin_frames.encode_ready(PROTOCOL_VERSION, sdk, [each for _, each in tools.values()], 0)
    if (size := plugin_frames.frame_size_bytes(ready)) > frames.max_frame_bytes:
        raise ServerFault(f"the MCP server's tools take {size} bytes and {frames.max_frame_bytes} are allowed")
    os.write(fds[1], plugin_frames.delimited_frame(plugin_frames.READY, ready))
    max_calls = hello.max_concurrent_calls or DEFAULT_MAX_CALLS
    engine = McpEngine(frames, fds, connection, session, tools, max_calls=max_calls, roots=roots, log=log)
    return engine.run()


def _connect(
    launch: dict[str, Any], hello: sidecar_frames.Hello, roots: str, log: LogLines, started: list[ServerProcess]
) -> tuple[ServerConnection, Session]:
    """Start the server and agree on a revision; once more, the older way, where the newer one made it exit."""
    for stateless in (True, False):
        process = ServerProcess(_argv(launch), _environment(launch, hello))
        started.append(process)
        connection = ServerConnection(process, max_line_bytes=2 * frames_limit(hello), roots=roots, log=log.warn)
        try:
            return connection, negotiate(connection, stateless=stateless, samples=bool(hello.takes_inferences))
        except ServerFault:
            if not stateless or process.is_running:
                raise
    raise ServerFault("the MCP server doesn't start")


def frames_limit(hello: sidecar_frames.Hello) -> int:
    """Largest frame in bytes. A line with as large a result may be longer, for base64 and escapes."""
    return hello.max_frame_bytes or DEFAULT_MAX_FRAME_BYTES


def _argv(launch: dict[str, Any]) -> list[str]:
    if "url" in launch:
        return [sys.executable, "-m", "fumehood_sdk.adapters.mcp.remote.main"]
    program, *arguments = launch["command"]
    return [sys.executable if program == "python" else program, *arguments]


def _environment(launch: dict[str, Any], hello: sidecar_frames.Hello) -> dict[str, str]:
    handed = dict(hello.secrets)
    if "url" in launch:
        from fumehood_sdk.adapters.mcp.remote.settings import to_environment  # noqa: PLC0415 - urllib takes 4 ms

        headers = dict(launch["headers"])
        for field, (name, prefix) in launch["secret_headers"].items():
            headers[field] = prefix + handed.get(name, UNKNOWN_SECRET.encode()).decode("latin-1").strip()
        return {**os.environ, **to_environment(launch, headers, 2 * frames_limit(hello))}
    secrets = {
        variable: handed[name].decode("utf-8", "surrogateescape") if name in handed else UNKNOWN_SECRET
        for variable, name in launch.get("secrets", {}).items()
    }
    return {**os.environ, **launch.get("environment", {}), **secrets}


def _roots(hello: sidecar_frames.Hello) -> str:
    """The granted folders as a `ListRootsResult`."""
    paths = [*hello.readable_paths, *hello.writable_paths]
    return json.dumps({"roots": [{"uri": _file_uri(path), "name": os.path.basename(path)} for path in paths]})  # noqa: PTH119 - pathlib takes 4 ms to import


def _file_uri(path: str) -> str:
    """A path as a URI (RFC 8089). Importing urllib.parse takes longer than all the rest of a start."""
    return "file://" + "".join(chr(each) if each in _UNRESERVED else f"%{each:02X}" for each in os.fsencode(path))


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)
