"""A server that wants its key, its note and its service before it says what tools it has."""

from __future__ import annotations

import os
import runpy
import sys
import urllib.request
from pathlib import Path

if os.environ.get("TOKEN") != "s3cret-value":
    sys.exit("picky: not my key")
if not Path(os.environ["NOTE"]).is_file():
    sys.exit("picky: no note")
try:
    urllib.request.urlopen(os.environ["SERVICE"], timeout=10).read()  # noqa: S310 - the test says which
except OSError as error:
    sys.exit(f"picky: no service: {error}")
runpy.run_path(str(Path(__file__).with_name("server.py")), run_name="__main__")
