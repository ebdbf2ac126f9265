"""The shim of kind `cli`: speaks the wire to the sidecar, and runs the plugin's binary for each call.

Started by the sidecar as `python -m fumehood_sdk.adapters.cli MANIFEST [BINARY [NAME=BINARY]...]`, where MANIFEST is
plugin.toml or its folder, the first BINARY the path that the sidecar found for the manifest's `binary`, and the others
those for the binaries of single tools.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Awaitable, Mapping
from typing import Any

from fumehood_sdk.adapters.run_program import FinishedProgram, Surroundings, Wakeup, run_program
from fumehood_sdk.adapters.template import ArgumentError, Template, TemplateError, TextTemplate
from fumehood_sdk.call import Call
from fumehood_sdk.errors import Cancelled, PluginError, ToolError
from fumehood_sdk.json_text import dumps
from fumehood_sdk.runtime.hello import DEFAULT_MAX_FRAME_BYTES
from fumehood_sdk.runtime.registered_tool import Runnable
from fumehood_sdk.runtime.serve import ServedPlugin, exit_process, serve_plugin
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

    __slots__ = (
        "_binary",
        "_defaults",
        "_environment",
        "_folder",
        "_is_json",
        "_limit_bytes",
        "_program",
        "_stdin",
        "_success",
        "_tells_stdout",
        "_template",
        "_working_folder",
        "name",
        "sequential",
    )

    is_async = False
    preparation = None
    interruptible = False
    """Cancelling it ends the program. An exception raised in between would leave the program running."""

    def __init__(self, table: Mapping[str, Any], folder: str, binary: str, program: str, max_frame_bytes: int) -> None:
        """Read a `[[tool]]` table, which the sidecar has checked. `folder` is the plugin's.

        Raises:
            PluginError: its template is malformed.
        """
        self.name: str = table["name"]
        self.sequential: bool = table.get("execution_mode") == "sequential"
        self._binary = binary
        self._program = program
        self._folder = folder
        self._is_json = table.get("output") == "json"
        output_schema = table.get("output_schema") or {}
        output_schema = json.loads(output_schema) if isinstance(output_schema, str) else output_schema
        self._tells_stdout = "stdout" in output_schema.get("properties", {})
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
            self._stdin = TextTemplate(table["stdin"], "stdin") if "stdin" in table else None
            self._working_folder = (
                TextTemplate(table["working_folder"], "working_folder") if "working_folder" in table else None
            )
            self._environment = {
                name: TextTemplate(text, f"environment.{name}") for name, text in table.get("environment", {}).items()
            }
        except TemplateError as error:
            raise PluginError(f"tool {self.name}: {error}") from error

    def invoke(self, call: Call) -> plugin_frames.Sent:
        """Run the program for a call.

        Raises:
            ToolError: an argument can't stand in the command, the program can't be started, or it failed.
            Cancelled: the call was cancelled, and the program has ended.
        """
        argv, given = self._render(call)
        wakeup = Wakeup()
        try:
            call.add_cancel_callback(wakeup.wake)
            if call.cancel_reason is not None:
                raise Cancelled(call.cancel_reason)
            finished = run_program(
                argv,
                self._program,
                stdout_limit_bytes=self._limit_bytes,
                wakeup=wakeup,
                cancelled=lambda: call.cancel_reason is not None,
                given=given,
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

    def _render(self, call: Call) -> tuple[list[str], Surroundings]:
        # Numbers stay the text that they were sent as: a float would lose digits, and the program wants text anyway.
        arguments = {**self._defaults, **json.loads(call.arguments_json or b"{}", parse_int=str, parse_float=str)}
        try:
            argv = [self._binary, *self._template.render(arguments)]
            variables = {name: template.render(arguments) for name, template in self._environment.items()}
            found = {name: text for name, text in variables.items() if text is not None}
            return argv, Surroundings(
                self._stdin_of(call, arguments), {**os.environ, **found} if found else None, self._folder_of(arguments)
            )
        except ArgumentError as error:
            pointer = "/" + error.name.replace("~", "~0").replace("/", "~1")
            entry = {"pointer": pointer, "rule": error.rule, "message": error.problem}
            raise ToolError(
                f"invalid arguments: {error}", reason="invalid_arguments", details={"arguments": [entry]}
            ) from error

    def _stdin_of(self, call: Call, arguments: dict[str, object]) -> bytes | None:
        if self._stdin is None:
            return None
        if any(isinstance(arguments.get(name), dict | list) for name in self._stdin.names):
            exact = {**self._defaults, **json.loads(call.arguments_json or b"{}")}
            arguments = {
                name: dumps(exact[name]).decode() if isinstance(value, dict | list) else value
                for name, value in arguments.items()
            }
        text = self._stdin.render(arguments)
        return None if text is None else text.encode("utf-8", "surrogatepass")

    def _folder_of(self, arguments: dict[str, object]) -> str | None:
        """The working folder. One that doesn't begin with "/" lies in the plugin's."""
        text = None if self._working_folder is None else self._working_folder.render(arguments)
        if text is None:
            return None
        folder = os.path.join(self._folder, text)  # noqa: PTH118 - pathlib takes 4 ms to import
        if self._working_folder is not None and self._working_folder.names and not os.path.isdir(folder):  # noqa: PTH112
            raise ArgumentError(self._working_folder.names[0], "folder", "is not a folder that the tool may see")
        return folder

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
        if self._is_json:
            return self._json_result(finished)
        text = finished.stdout.decode("utf-8", "replace")
        truncated = finished.truncated
        while True:
            facts = {"exit_code": finished.exit_code, "truncated": truncated}
            # Told once: as the text, or in the details where the tool's output schema names it.
            content = () if self._tells_stdout else (text,)
            details = dumps({**facts, "stdout": text} if self._tells_stdout else facts)
            size = len(details) + sum(len(each.encode()) for each in content)
            if size <= self._limit_bytes or not text:
                return content, details, False
            # Escapes make JSON up to six times as long as its text.
            text = text[: int(len(text) * min(_CUT_STEP, self._limit_bytes / size))]
            truncated = True

    def _json_result(self, finished: FinishedProgram) -> plugin_frames.Sent:
        if finished.truncated:
            raise ToolError(
                f"{self._binary} wrote more than {self._limit_bytes} bytes, so its JSON is not whole: ask it for less",
                reason="output_too_large",
            )
        try:
            details = dumps(json.loads(finished.stdout))
        except ValueError as error:
            raise ToolError(f"what {self._binary} wrote is not JSON: {error}", reason="invalid_output") from error
        return (), details, False


class CliPlugin:
    """The tools of one plugin.toml."""

    __slots__ = ("concurrency", "name", "tools")
    version = ""
    """The manifest's is the only one."""

    def __init__(
        self, manifest: Mapping[str, Any], folder: str, programs: Mapping[str, str], max_frame_bytes: int
    ) -> None:
        """Read a manifest, which the sidecar has checked. `programs` are paths by a tool's binary, "" for the plugin's.

        What is not among them is looked up on PATH when a tool that runs it is called.

        Raises:
            PluginError: it is not of kind `cli`, or a template is malformed.
        """
        plugin = manifest["plugin"]
        if plugin.get("kind") != "cli":
            raise PluginError(f"plugin.toml is of kind {plugin.get('kind')!r}, not cli")
        self.name: str = plugin["name"]
        self.concurrency: int | None = plugin.get("concurrency")
        first: str = plugin.get("binary") or manifest["tool"][0]["binary"]
        tools = [
            CliTool(table, folder, *_program_of(table, first, programs), max_frame_bytes) for table in manifest["tool"]
        ]
        self.tools: Mapping[str, Runnable] = {tool.name: tool for tool in tools}

    def definitions(self) -> list[bytes]:
        """None: the sidecar reads them in the manifest."""
        return []


def main(arguments: list[str]) -> int:
    """Serve the plugin of the manifest that the arguments name. Returns the exit status."""
    if not arguments:
        sys.stderr.write("usage: python -m fumehood_sdk.adapters.cli MANIFEST [BINARY [NAME=BINARY]...]\n")
        return _USAGE
    path = arguments[0]
    if os.path.isdir(path):  # noqa: PTH112 - pathlib takes 4 ms to import
        path = os.path.join(path, "plugin.toml")  # noqa: PTH118 - likewise

    def load(hello: Hello) -> ServedPlugin:
        with open(path, "rb") as file:  # noqa: PTH123 - likewise
            manifest = tomllib.load(file)
        programs = {"": arguments[1]} if arguments[1:] else {}
        for argument in arguments[2:]:
            name, _, program = argument.partition("=")
            programs[name] = program
        folder = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120 - likewise
        return CliPlugin(manifest, folder, programs, hello.max_frame_bytes or DEFAULT_MAX_FRAME_BYTES)

    return serve_plugin(load)


def _program_of(table: Mapping[str, Any], first: str, programs: Mapping[str, str]) -> tuple[str, str]:
    """Name and path of the program that a tool runs. `first` is the name of that which `programs` has as ""."""
    binary: str = table.get("binary") or first
    found = programs.get("" if binary == first else binary)
    if found:
        return binary, found
    import shutil  # noqa: PLC0415 - the sidecar has looked already; this is for a run by hand

    found = shutil.which(binary)
    if found is None and not programs:
        raise PluginError(f"binary {binary!r} is not on PATH: install it")
    return binary, found or binary


if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
