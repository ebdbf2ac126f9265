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
