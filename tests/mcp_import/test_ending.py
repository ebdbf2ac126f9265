"""An import that is told to end undoes what is half done, by whichever signal."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests import preloaded
from tests.cli.command import COMMAND, TIMEOUT_S, environment
from tests.mcp_import.own_server import import_servers, write_script, write_servers

HANGS = "import time\nwhile True:\n    time.sleep(60)\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    write_servers(tmp_path, {"slow": {"API_KEY": "value-0000001"}})
    write_script(tmp_path, HANGS)
    with preloaded.Popen[bytes](
        [*COMMAND, "mcp", "import", "mcp.json", "--yes"],
        cwd=tmp_path,
        env=environment(more={"TMPDIR": str(temporary)}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        said = b""
        while b"to be told its tools" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        process.send_signal(number)
        said += process.stderr.read()
        assert process.wait(TIMEOUT_S) == 128 + number, said.decode()
    left = [*tmp_path.glob("mcp/*"), *tmp_path.glob("**/secrets/*"), *temporary.iterdir()]
    assert (left, (tmp_path / "fumehood.toml").exists()) == ([], False)
    (found,) = import_servers(tmp_path, {"slow": {"API_KEY": "value-0000001"}})
    assert found["status"] == "imported", found
