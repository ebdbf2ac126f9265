"""What an engine takes from its surroundings: no library without one, and nothing of the environment with one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.orchestration.scripted import ScriptedModel

_LIBRARIES = ("pydantic_ai", "openai", "anthropic", "httpx2", "genai_prices", "griffe")

_IMPORT = f"""
import sys
import fumehood_server.app
import fumehood_server.orchestration.context, fumehood_server.orchestration.engines.opening
import fumehood_server.orchestration.engines.retrying, fumehood_server.orchestration.engines.vendor_options
print(sorted({set(_LIBRARIES)} & {{name.partition(".")[0] for name in sys.modules}}))
"""

_ASK = """
import asyncio, json, logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
from fumehood_server.config.engines import EngineConfig, Provider
from fumehood_server.orchestration.engines.engine import EngineError, InferenceRequest
from fumehood_server.orchestration.engines.opening import open_engines
from fumehood_server.orchestration.messages import Message, Role
from fumehood_server.secrets import SecretStore

async def ask():
    config = EngineConfig(name="e", provider=Provider(sys.argv[2]), model="m", base_url=sys.argv[1])
    request = InferenceRequest(messages=(Message(role=Role.USER, text="a very private question"),))
    async with open_engines([config], SecretStore({})) as engines:
        print(json.dumps((await engines["e"].infer(request, lambda _: None)).message.text))
        try:
            await engines["e"].infer(request, lambda _: None)
        except EngineError as error:
            print(json.dumps(str(error)))

asyncio.run(ask())
"""


class _Proxy(BaseHTTPRequestHandler):
    asked = 0

    def do_POST(self) -> None:
        type(self).asked += 1
        self.send_error(502)

    do_CONNECT = do_GET = do_POST  # noqa: N815 - the base class's names

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_without_an_engine_no_library_of_models_is_imported() -> None:
    found = subprocess.run([sys.executable, "-c", _IMPORT], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_no_variable_sends_a_request_elsewhere_adds_to_it_or_has_it_logged(
    scripted_model: ScriptedModel, provider: str
) -> None:
    scripted_model.says("a very private answer")
    scripted_model.fails(400, "a very private error")
    with HTTPServer(("127.0.0.1", 0), _Proxy) as proxy:
        serving = threading.Thread(target=proxy.serve_forever, daemon=True)
        serving.start()
        elsewhere = f"http://127.0.0.1:{proxy.server_port}"
        environment = os.environ | {
            **dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"), elsewhere),
            "NO_PROXY": "",
            "no_proxy": "",
            **dict.fromkeys(("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"), elsewhere),
            **{f"{name}_API_KEY": "sk-from-the-environment" for name in ("OPENAI", "ANTHROPIC")},
            **{f"{name}_LOG": "debug" for name in ("OPENAI", "ANTHROPIC")},
            **{f"{name}_CUSTOM_HEADERS": "x-from: the-environment" for name in ("OPENAI", "ANTHROPIC")},
            "OPENAI_ORG_ID": "org-from-the-environment",
            "ANTHROPIC_AUTH_TOKEN": "from-the-environment",
        }
        url = scripted_model.base_url if provider == "openai" else scripted_model.url
        command = [sys.executable, "-c", _ASK, url, provider]
        found = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        proxy.shutdown()
        serving.join()
    assert found.returncode == 0, found.stderr
    answer, error = map(json.loads, found.stdout.splitlines())
    assert (answer, "a very private error" in error) == ("a very private answer", True)
    assert "private" not in found.stderr
    assert _Proxy.asked == 0
    for headers in scripted_model.headers():
        assert not [name for name, value in headers.items() if "environment" in value or name.startswith("x-stainless")]
