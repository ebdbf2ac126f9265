"""`[telemetry]`: what is refused, and that without it nothing is imported."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from fumehood_server.config import load_config
from fumehood_server.config.restart import needs_restart
from fumehood_server.errors import ConfigError

from tests.cli.command import fumehood

_IMPORTED = """
import sys
import fumehood_server.app
print(sorted({name.partition(".")[0] for name in sys.modules} & {"opentelemetry", "prometheus_client"}))
"""
_WITHOUT = """
import sys
sys.modules["prometheus_client"] = sys.modules["opentelemetry"] = None
from pathlib import Path
from fumehood_server.cli import main
sys.argv = ["fumehood", "serve", "--config", sys.argv[1]]
main()
"""


def load(folder: Path, text: str) -> object:
    (folder / "fumehood.toml").write_text(text)
    return load_config(folder / "fumehood.toml").telemetry


def test_every_key_arrives_and_a_change_needs_a_restart(tmp_path: Path) -> None:
    first = load_config(None if load(tmp_path, "") is None else tmp_path / "fumehood.toml")
    assert not first.telemetry.is_on
    load(
        tmp_path,
        '[telemetry]\nprometheus = "[::1]:9464"\notlp_endpoint = "https://otel.example:4317"\nservice_name = "a"\n'
        'traces_sample_ratio = 0.5\nmetrics_interval_s = 60\npropagate_to = ["API.example.com:443"]\n',
    )
    second = load_config(tmp_path / "fumehood.toml")
    settings = second.telemetry
    assert (settings.prometheus, settings.otlp_endpoint) == (("::1", 9464), "https://otel.example:4317")
    assert (settings.service_name, settings.traces_sample_ratio, settings.metrics_interval_s) == ("a", 0.5, 60)
    assert settings.propagate_to == ("api.example.com:443",)
    assert "telemetry.prometheus" in needs_restart(first, second)
    assert needs_restart(second, second) == ()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('prometheus = "0.0.0.0:9464"', "other machines"),
        ('prometheus = "unix:metrics"', "over TCP"),
        ('prometheus = "127.0.0.1:0"', "port 0"),
        ('otlp_endpoint = "collector:4317"', "no URL"),
        ('otlp_endpoint = "http://collector:99999"', "no URL"),
        ('otlp_endpoint = "http://collector:4317/v1/traces"', "no URL"),
        ('otlp_endpoint = "http://me:word@collector:4317"', "password"),
        ("traces_sample_ratio = 2", "traces_sample_ratio"),
        ('propagate_to = ["example.com"]', "port"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_its_line(tmp_path: Path, lines: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        load(tmp_path, f"[telemetry]\n{lines}\n")
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("plugin", "reached"),
    [
        ('hosts = ["127.0.0.1:9464"]\nallow_private = ["127.0.0.1"]', True),
        ('hosts = ["metrics.example:9464"]\nallow_private = ["metrics.example=127.0.0.1"]', True),
        ('allow_private = ["127.0.0.1"]\n[plugin.tools.a]\nhosts = ["127.0.0.1:9464"]', True),
        ('hosts = ["127.0.0.1:8080"]\nallow_private = ["127.0.0.1"]', False),
        ('hosts = ["127.0.0.1:9464"]', False),
    ],
)
def test_an_endpoint_that_a_plugin_may_ask_is_refused(tmp_path: Path, plugin: str, reached: bool) -> None:
    text = f'[telemetry]\nprometheus = "localhost:9464"\n[[plugin]]\npath = "p"\n{plugin}\n'
    if not reached:
        load(tmp_path, text)
        return
    with pytest.raises(ConfigError, match="may reach port 9464"):
        load(tmp_path, text)


def test_without_telemetry_no_library_of_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", _IMPORTED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("line", ['prometheus = "127.0.0.1:{port}"', 'otlp_endpoint = "http://127.0.0.1:{port}"'])
def test_a_missing_library_is_named_with_the_command_that_installs_it(tmp_path: Path, line: str) -> None:
    path = tmp_path / "fumehood.toml"
    path.write_text(f"[telemetry]\n{line.format(port=9464)}\n")
    command = [sys.executable, "-c", _WITHOUT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert '"./server[telemetry]" in a clone, or "fumehood-server[telemetry]" from an index' in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fumehood.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path.write_text(f'[telemetry]\nprometheus = "127.0.0.1:{taken.getsockname()[1]}"\n')
        done = fumehood("serve", "--config", path, folder=tmp_path)
    assert done.status == 2
    assert "can't serve metrics at 127.0.0.1:" in done.stderr
    assert "Traceback" not in done.stderr
