"""The program of a plugin of kind `python`: `python -m fumehood_sdk.main MODULE:ATTRIBUTE [FOLDER [PACKAGES]]`."""

from __future__ import annotations

import sys

from fumehood_sdk.runtime.serve import ServedPlugin, exit_process, serve_plugin
from fumehood_sdk.wire.sidecar_frames import Hello

USAGE = 2


def main(arguments: list[str]) -> int:
    """Serve the plugin that the arguments name. Returns the exit status.

    The folder is not needed where `sys.path` has it already. The third argument is where the packages of its lock are.
    """
    if len(arguments) not in (1, 2, 3):
        sys.stderr.write("usage: python -m fumehood_sdk.main MODULE:ATTRIBUTE [FOLDER [PACKAGES]]\n")
        return USAGE
    entrypoint = arguments[0]
    folder = arguments[1] if arguments[1:] else ""
    packages = arguments[2] if arguments[2:] else ""

    def load(hello: Hello) -> ServedPlugin:
        from fumehood_sdk.loading import load as load_plugin  # noqa: PLC0415 - after the wire was moved away

        return load_plugin(entrypoint, folder, hello.plugin, packages)

    return serve_plugin(load)


if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
