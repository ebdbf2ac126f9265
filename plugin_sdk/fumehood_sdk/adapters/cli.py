"""The shim of kind `cli`: speaks the wire to the sidecar, and runs the plugin's binary for each call.

Started by the sidecar as `python -m fumehood_sdk.adapters.cli MANIFEST [BINARY]`, where MANIFEST is plugin.toml or its
folder and BINARY the path that the sidecar found for the manifest's `binary`.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Awaitable, Mapping
from typing import Any

from fumehood_sdk.adapters.run_program import FinishedProgram, Wakeup, run_program
from fumehood_sdk.adapters.template import ArgumentError, Template, TemplateError
from fumehood_sdk.call import Call
from fumehood_sdk.errors import Cancelled, PluginError, ToolError
from fumehood_sdk.json_text import dumps
from fumehood_sdk.runtime.registered_tool import Runnable
from fumehood_sdk.runtime.serve import DEFAULT_MAX_FRAME_BYTES, ServedPlugin, exit_process, serve_plugin
from fumehood_sdk.wire import plugin_frames
from fumehood_sdk.wire.sidecar_frames import Hello

DEFAULT_OUTPUT_BYTES = 1024 * 1024
"""The sidecar's default of `output_bytes`."""
_OVERHEAD_BYTES = 4096
"""Room for a result's other fields, and the frame around it."""
_CUT_STEP = 0.9
_USAGE = 2


class CliTool:
    """A `[[tool]]` table of the manifest: an argument template, and how the program's exit becomes a result."""

    __slots__ = ("_binary", "_defaults", "_limit_bytes", "_program", "_success", "_template", "name", "sequential")

    is_async = False
    interruptible = False
    """Cancelling it ends the program. An exception raised in between would leave the program running."""

    def __init__(self, table: Mapping[str, Any], binary: str, program: str, max_frame_bytes: int) -> None:
        """Read a `[[tool]]` table, which the sidecar has checked.

        Raises:
            PluginError: its template is malformed.
        """
        self.name: str = table["name"]
        self.sequential: bool = table.get("execution_mode") == "sequential"
        self._binary = binary
        self._program = program
        self._success = frozenset(table.get("success_exit_codes", (0,)))
        limit_bytes = table.get("limits", {}).get("output_bytes", DEFAULT_OUTPUT_BYTES)
        self._limit_bytes = max(0, min(limit_bytes, max_frame_bytes) - _OVERHEAD_BYTES)
        schema = table["input_schema"]
        schema = json.loads(schema) if isinstance(schema, str) else schema
        self._defaults = {
            name: rule["default"]
            for name, rule in schema.get("properties", {}).items()
            if isinstance(rule, dict) and "default" in rule
        }
        try:
            self._template = Template(table["argv"])
        except TemplateError as error:
            raise PluginError(f"tool {self.name}: {error}") from error

    def invoke(self, call: Call) -> plugin_frames.Sent:
        """Run the program for a call.

        Raises:
            ToolError: an argument can't stand in the command, the program can't be started, or it failed.
            Cancelled: the call was cancelled, and the program has ended.
        """
        argv = [self._binary, *self._render_argv(call)]
        wakeup = Wakeup()
        try:
            call.add_cancel_callback(wakeup.wake)
            if call.cancel_reason is not None:
                raise Cancelled(call.cancel_reason)
            finished = run_program(
                argv,
                self._program,
                stdout_limit_bytes=self._limit_bytes // 2,
                wakeup=wakeup,
                cancelled=lambda: call.cancel_reason is not None,
            )
        except OSError as error:
            raise ToolError(
                f"{self._binary} can't be started: {error.strerror or error}",
                reason="start_failed",
                details={"binary": self._binary, "errno": error.errno},
            ) from error
        finally:
            wakeup.close()
        if call.cancel_reason is not None:
            raise Cancelled(call.cancel_reason)
        return self._result(call, finished)

    def invoke_async(self, call: Call) -> Awaitable[plugin_frames.Sent]:
        """Never called: `is_async` is False."""
        raise NotImplementedError

    def _render_argv(self, call: Call) -> list[str]:
        # Numbers stay the text that they were sent as: a float would lose digits, and the program wants text anyway.
        arguments = json.loads(call.arguments_json or b"{}", parse_int=str, parse_float=str)
        try:
            return self._template.render({**self._defaults, **arguments})
        except ArgumentError as error:
            pointer = "/" + error.name.replace("~", "~0").replace("/", "~1")
            entry = {"pointer": pointer, "rule": error.rule, "message": error.problem}
            raise ToolError(
                f"invalid arguments: {error}", reason="invalid_arguments", details={"arguments": [entry]}
            ) from error

    def _result(self, call: Call, finished: FinishedProgram) -> plugin_frames.Sent:
        stderr = finished.stderr.decode("utf-8", "replace")
        if finished.exit_code not in self._success:
            if finished.exit_code < 0:
                how = f"was ended by signal {-finished.exit_code}"
            else:
                how = f"exited with status {finished.exit_code}"
            raise ToolError(
                f"{self._binary} {how}" + (f": {stderr.strip()[-1024:]}" if stderr.strip() else ""),
                reason="exit_status",
                details={"exit_code": finished.exit_code, "stderr": stderr},
            )
        if stderr.strip():
            call.sink.write_log(call, plugin_frames.WARNING, stderr.strip(), b"")
        text = finished.stdout.decode("utf-8", "replace")
        truncated = finished.truncated
        while True:
            details = dumps({"exit_code": finished.exit_code, "stdout": text, "truncated": truncated})
            size = len(details) + len(text.encode())
            if size <= self._limit_bytes or not text:
                return (text,), details, False
            # Escapes make JSON up to six times as long as its text.
            text = text[: int(len(text) * min(_CUT_STEP, self._limit_bytes / size))]
            truncated = True


class CliPlugin:
    """The tools of one plugin.toml."""

    __slots__ = ("concurrency", "name", "tools")
    version = ""
    """The manifest's is the only one."""

    def __init__(self, manifest: Mapping[str, Any], program: str, max_frame_bytes: int) -> None:
        """Read a manifest, which the sidecar has checked. An empty `program` is looked up on PATH.

        Raises:
            PluginError: it is not of kind `cli`, or a template is malformed.
        """
        plugin = manifest["plugin"]
        if plugin.get("kind") != "cli":
            raise PluginError(f"plugin.toml is of kind {plugin.get('kind')!r}, not cli")
        self.name: str = plugin["name"]
        self.concurrency: int | None = plugin.get("concurrency")
        binary: str = plugin["binary"]
        tools = [
            CliTool(table, binary, program or _find_program(binary), max_frame_bytes) for table in manifest["tool"]
        ]
        self.tools: Mapping[str, Runnable] = {tool.name: tool for tool in tools}

    def definitions(self) -> list[bytes]:
        """None: the sidecar reads them in the manifest."""
        return []


def main(arguments: list[str]) -> int:
    """Serve the plugin of the manifest that the arguments name. Returns the exit status."""
    if len(arguments) not in (1, 2):
        sys.stderr.write("usage: python -m fumehood_sdk.adapters.cli MANIFEST [BINARY]\n")
        return _USAGE
    path = arguments[0]
    if os.path.isdir(path):  # noqa: PTH112 - pathlib takes 4 ms to import
        path = os.path.join(path, "plugin.toml")  # noqa: PTH118 - likewise

    def load(hello: Hello) -> ServedPlugin:
        with open(path, "rb") as file:  # noqa: PTH123 - likewise
            manifest = tomllib.load(file)
        program = arguments[1] if arguments[1:] else ""
        return CliPlugin(manifest, program, hello.max_frame_bytes or DEFAULT_MAX_FRAME_BYTES)

    return serve_plugin(load)


def _find_program(binary: str) -> str:
    import shutil  # noqa: PLC0415 - the sidecar has looked already; this is for a run by hand

    found = shutil.which(binary)
    if found is None:
        raise PluginError(f"binary {binary!r} is not on PATH: install it")
    return found


if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
