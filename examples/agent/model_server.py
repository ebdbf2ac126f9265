"""llama.cpp's server with a small model, on loopback: what `[[engine]]` of fumehood.toml asks.

Prints `listening URL` once it answers, and ends with its stdin: no model outlives whoever started it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "build/model"
"""Where tools/setup/model.sh puts the model and its server."""
NAME = "qwen2.5-coder-1.5b-instruct"
PORT = 8734
CONTEXT_TOKENS = 8192


def main() -> int:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=PORT, help="0: any that is free")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="1 where others work here too")
    given = parser.parse_args()
    sys.path.insert(0, str(MODEL / "lib"))
    import xllamacpp  # noqa: PLC0415 - it is not of this environment

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(MODEL / "model.gguf")
    parameters.model_alias = {NAME}
    parameters.chat_template = Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")
    parameters.use_jinja = True
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = given.threads
    parameters.cpuparams.poll = 0  # no thread spins while it waits for another
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = given.port
    parameters.cors_origins = ""  # no page in a browser of this machine may ask it
    parameters.ui = False
    parameters.warmup = False
    server = xllamacpp.Server(parameters)
    print(f"listening {server.listening_address}", flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # its threads would have to be waited for, and hold nothing


if __name__ == "__main__":
    sys.exit(main())
