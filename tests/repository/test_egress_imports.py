"""A sidecar that grants no hosts does not pay for a broker."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
import fumehood_server.app, fumehood_server.egress
{more}
print(sorted({{"h11", "idna"}} & set(sys.modules)))
"""


@pytest.mark.parametrize(("more", "loaded"), [("", "[]"), ("fumehood_server.egress.open_broker()", "['h11']")])
def test_the_http_library_is_loaded_with_the_first_broker(more: str, loaded: str) -> None:
    program = _PROGRAM.format(more=more)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == loaded


_FIRST_REQUEST = """
import asyncio, sys, threading
from fumehood_server.plugin_requests import PluginRequests
from fumehood_server.secrets import SecretStore
from fumehood_server.workers import LogSink

threads = []


class Watch:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in {"h11", "fumehood_server.egress.broker"}:
            threads.append(threading.current_thread() is threading.main_thread())


sys.meta_path.insert(0, Watch)
asyncio.run(PluginRequests(SecretStore({}), LogSink()).broker())
print(threads)
"""


def test_the_http_library_is_not_loaded_on_the_event_loop() -> None:
    command = [sys.executable, "-c", _FIRST_REQUEST]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[False, False]"
