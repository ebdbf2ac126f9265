"""The life of a plugin's process: take the wire from stdin and stdout, `Hello`, load, `Ready`, calls, exit."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fumehood_sdk.call import Grants
from fumehood_sdk.errors import WireError
from fumehood_sdk.runtime.descriptors import close_in_forks, prepare_streams, take_wire
from fumehood_sdk.runtime.engine import Engine
from fumehood_sdk.runtime.frame_writer import FrameWriter
from fumehood_sdk.runtime.hello import DEFAULT_MAX_CALLS, DEFAULT_MAX_FRAME_BYTES, PROTOCOL_VERSION, SDK, read_hello
from fumehood_sdk.runtime.registered_tool import Runnable
from fumehood_sdk.wire import plugin_frames, sidecar_frames
from fumehood_sdk.wire.framing import FrameReader

SWITCH_INTERVAL_S = 0.001
"""How long a thread that computes keeps the others waiting. Python's own 5 ms would be felt by each quick call beside a
slow one."""
OK, FAILED = 0, 1
_OUR_FRAMES = (__file__.removesuffix("runtime/serve.py"), "<frozen ", os.__file__.removesuffix("os.py") + "importlib/")
"""How names of files begin that are the SDK's or the import system's."""


class ServedPlugin(Protocol):
    """A plugin that is served: its author's, or the tools of a manifest of kind `cli`."""

    @property
    def name(self) -> str:
        """The plugin's name."""

    @property
    def version(self) -> str:
        """The version that its code gives itself. Empty where the manifest alone has one."""

    @property
    def concurrency(self) -> int | None:
        """Most calls at a time. None: as many as the sidecar offers."""

    @property
    def tools(self) -> Mapping[str, Runnable]:
        """The tools by name."""

    def definitions(self) -> list[bytes]:
        """An encoded `ToolDefinition` for each tool; none where the manifest has them."""


def serve_plugin(load: Callable[[sidecar_frames.Hello], ServedPlugin]) -> int:
    """Serve what `load` returns over stdin and stdout, until they end or a shutdown is asked for.

    `load` runs after the wire was moved away, and may import the author's code. Returns the exit status: 0, or 1 with
    the reason on stderr when the plugin could not be loaded or the sidecar does not speak the wire.
    """
    fd_in, fd_out = take_wire()
    for fd in (fd_in, fd_out):
        os.set_blocking(fd, True)
    prepare_streams()
    zygote = sys.modules.get("fumehood_zygote")
    if zygote is None:  # whose children are given other descriptors, and keep nothing of its own
        close_in_forks(fd_in, fd_out)
    # pydantic's plugins watch models in services; looking for them reads every installed distribution's metadata.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Importing makes many objects and no garbage; collections during it are a tenth of its time.
    gc.disable()
    reader = FrameReader(lambda size: os.read(fd_in, size), DEFAULT_MAX_FRAME_BYTES)
    writer = FrameWriter(fd_out, DEFAULT_MAX_FRAME_BYTES)
    try:
        hello = read_hello(reader)
        if hello is None:
            return OK
        if hello.max_frame_bytes:
            reader.max_frame_bytes = writer.max_frame_bytes = hello.max_frame_bytes
        if PROTOCOL_VERSION not in hello.protocol_versions:
            # Said in its own words as well: the sidecar finds a version that it did not offer.
            writer.write_ready(plugin_frames.encode_ready(PROTOCOL_VERSION, SDK, [], 0))
            return _fail(
                f"the sidecar speaks versions {hello.protocol_versions} of the wire, this SDK {PROTOCOL_VERSION}"
            )
        try:
            served = load(hello)
        except BaseException as error:  # noqa: BLE001 - whatever importing the author's code raises, exits included
            _print_traceback(error)
            return FAILED
        offered = hello.max_concurrent_calls or DEFAULT_MAX_CALLS
        max_calls = min(offered, served.concurrency or offered)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        grants = Grants(tuple(hello.readable_paths), tuple(hello.writable_paths))
        if zygote is not None:
            return _fork_for_calls(zygote, fd_in, writer, served, grants)
        engine = Engine(reader, writer, served.tools, max_calls=max_calls, grants=grants)
        # What was imported stays: the collector need not look at it again.
        gc.freeze()
        gc.enable()
        writer.write_ready(_encode_ready(served))
        wrong = engine.run()
    except (WireError, ValueError, RuntimeError) as error:
        return _fail(str(error))
    return OK if wrong is None else _fail(str(wrong))


def _fork_for_calls(zygote: Any, fd_in: int, writer: FrameWriter, served: ServedPlugin, grants: Grants) -> int:  # noqa: ANN401
    """Say that the plugin is ready, and have the sandbox's module fork a process for each call; see `PythonModule`."""
    from fumehood_sdk.runtime.single_call import SingleCallEngine  # noqa: PLC0415 - before the forks, so that none imports it

    if any(tool.is_async for tool in served.tools.values()):
        import fumehood_sdk.runtime.aio  # noqa: F401, PLC0415 - asyncio, once and not in each process
    engine = SingleCallEngine(served.tools, grants, max_frame_bytes=writer.max_frame_bytes)
    engine.prepare_for_fork()
    writer.write_ready(_encode_ready(served))
    zygote.serve(fd_in, engine.serve)
    return OK


def _encode_ready(served: ServedPlugin) -> bytes:
    return plugin_frames.encode_ready(
        PROTOCOL_VERSION, SDK, served.definitions(), served.concurrency or 0, served.version
    )


def exit_process(status: int) -> None:
    """End the process without waiting for threads that don't end: a tool's may be stuck for good."""
    import atexit  # noqa: PLC0415 - needed once

    atexit._run_exitfuncs()  # noqa: SLF001 - the author's are owed; os._exit skips them
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # closed or replaced by the author's code
    os._exit(status)


def _fail(message: str) -> int:
    sys.stderr.write(f"fumehood-sdk: {message}\n")
    sys.stderr.flush()
    return FAILED


def _print_traceback(error: BaseException) -> None:
    import traceback  # noqa: PLC0415 - needed where it fails

    # From the author's first frame on: the sidecar keeps some last lines, which ours and importlib's would fill.
    theirs = error.__traceback__
    while theirs is not None and theirs.tb_frame.f_code.co_filename.startswith(_OUR_FRAMES):
        theirs = theirs.tb_next
    traceback.print_exception(error.with_traceback(theirs or error.__traceback__))
    sys.stderr.flush()
