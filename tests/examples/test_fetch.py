"""The fetch plugin: its words in-process, and its bounds through the real sidecar against a server of our own."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import trustme
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_sdk import HttpFailed, HttpRequest, HttpResponse
from fumehood_sdk.testing import CallResult, ToolTester

from tests.rpc.support import ToolClient
from tests.sidecar import running_sidecar
from tests.tool_requests.server import ANSWERS, Web, serving

from .test_plugins import PLUGINS
from .test_tools import load

HTML = """<!doctype html><html><head><title>The  Fume
Hood</title><style>p {color: red}</style><script>var x = "<p>no</p>";</script></head>
<body><h1>A &amp; B</h1><p>One line
and the same.</p><noscript>unseen</noscript><ul><li>first<li>second</ul></body>"""


def fetched(response: HttpResponse, **arguments: Any) -> CallResult:
    seen: list[HttpRequest] = []

    def answer(request: HttpRequest) -> HttpResponse:
        seen.append(request)
        return response

    result = ToolTester(load("fetch"), http=answer).call("fetch", url="https://a.example/", **arguments)
    assert [(each.timeout_s, each.max_bytes, each.max_redirects) for each in seen] == [(15, 1 << 20, 10)]
    return result


def page(content: str, content_type: str = "text/html; charset=utf-8") -> HttpResponse:
    return HttpResponse(200, url="https://a.example/", content=content.encode(), headers={"content-type": content_type})


def test_of_html_the_words_are_returned() -> None:
    found = fetched(page(HTML)).details
    assert (found["title"], found["text"]) == ("The Fume Hood", "A & B\n\nOne line and the same.\n\nfirst\nsecond")
    assert fetched(page(HTML), raw=True).details["text"] == HTML
    assert fetched(page('{"a": 1}', "application/json")).details["text"] == '{"a": 1}'


def test_a_long_text_is_read_in_parts() -> None:
    first = fetched(page("abcdefghij", "text/plain"), max_characters=4).details
    assert (first["text"], first["next_start"], first["total_characters"]) == ("abcd", 4, 10)
    last = fetched(page("abcdefghij", "text/plain"), max_characters=6, start=4).details
    assert (last["text"], last["next_start"]) == ("efghij", None)


@pytest.mark.parametrize(
    ("response", "reason", "retryable"),
    [
        (HttpResponse(404, url="https://a.example/", content=b"gone"), "http_status", False),
        (HttpResponse(503, url="https://a.example/"), "http_status", True),
        (page("%PDF", "application/pdf"), "not_text", False),
    ],
)
def test_what_is_no_text_is_a_failure_in_words(response: HttpResponse, reason: str, *, retryable: bool) -> None:
    error = fetched(response).error
    assert error is not None
    assert (error.reason, error.retryable) == (reason, retryable)


@pytest.mark.parametrize("url", ["http://a.example/", "file:///etc/passwd", "a.example"])
def test_only_https_is_fetched(url: str) -> None:
    error = ToolTester(load("fetch"), http=lambda _: page("x")).call("fetch", url=url).error
    assert error is not None
    assert error.reason == "scheme_not_allowed"


def test_a_network_that_fails_may_be_tried_again() -> None:
    def failing(_: HttpRequest) -> HttpResponse:
        raise HttpFailed("nobody is there", reason="connect_failed")

    error = ToolTester(load("fetch"), http=failing).call("fetch", url="https://a.example/").error
    assert error is not None
    assert (error.reason, error.retryable) == ("connect_failed", True)


# Through the real sidecar.


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A server whose certificate the sidecar trusts by `SSL_CERT_FILE`."""
    authority = trustme.CA()
    path = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with pytest.MonkeyPatch.context() as patch, serving(context) as web:
        patch.setenv("SSL_CERT_FILE", str(path))
        ANSWERS["/to-http"] = (302, b"", {"location": f"http://{web.host}/hello"})
        ANSWERS["/to-private"] = (302, b"", {"location": f"https://127.0.0.2:{web.port}/hello"})
        ANSWERS["/round"] = (302, b"", {"location": "/round"})
        ANSWERS["/long"] = (200, b"x" * (1 << 20), {"content-type": "text/plain"})
        ANSWERS["/too-long"] = (200, b"x" * ((1 << 20) + 1), {"content-type": "text/plain"})
        yield web


@pytest.fixture
async def tools(web: Web) -> AsyncIterator[ToolClient]:
    web.requests.clear()
    grants = f'max_side_effects = "external"\nhosts = ["{web.host}", "127.0.0.2:{web.port}"]\n'
    with running_sidecar([(PLUGINS / "fetch", grants)], more='[egress]\nallow_private = ["127.0.0.1"]\n') as sidecar:
        async with sidecar.channel() as channel:
            yield ToolClient(sidecar, channel)


async def test_pages_are_fetched_within_the_bounds_and_private_addresses_refused_on_every_hop(
    tools: ToolClient, web: Web
) -> None:
    found = await tools.details("fetch", url=f"{web.url}/hello")
    assert json.loads(found["text"]) == {"hello": "wörld"}
    assert (await tools.details("fetch", url=f"{web.url}/redirect"))["url"] == f"{web.url}/hello"
    assert (await tools.details("fetch", url=f"{web.url}/long"))["total_characters"] == 1 << 20
    assert await tools.reason("fetch", url=f"{web.url}/too-long") == "response_too_large"
    assert await tools.reason("fetch", url=f"{web.url}/to-http") == "redirect_downgrade"
    assert await tools.reason("fetch", url=f"{web.url}/to-private") == "address_not_public"
    assert await tools.reason("fetch", url=f"https://127.0.0.2:{web.port}/") == "address_not_public"
    assert await tools.reason("fetch", url=f"{web.url}/elsewhere") in {"host_not_granted", "redirect_downgrade"}
    web.requests.clear()
    assert await tools.reason("fetch", url=f"{web.url}/round") == "too_many_redirects"
    assert len(web.requests) == 11


async def test_a_request_of_any_method_waits_for_an_approval(tools: ToolClient, web: Web) -> None:
    listed = (await tools.tools.GetTool(pb.GetToolRequest(name="http_request"))).tool
    assert listed.availability.available
    arguments = json.dumps({"method": "POST", "url": f"{web.url}/hello"})
    request = pb.CallToolRequest(
        tool="http_request", arguments_json=arguments, call_id="asks", return_if_approval_required=True
    )
    assert (await tools.tools.CallTool(request)).result.error.code == "TOOL_APPROVAL_REQUIRED"
    assert web.requests == []


async def test_a_request_of_any_method_is_sent_where_the_operator_allows_it(web: Web) -> None:
    web.requests.clear()
    grants = f'max_side_effects = "external"\nhosts = ["{web.host}"]\n[plugin.tools.http_request]\npermission = "allow"'
    with running_sidecar([(PLUGINS / "fetch", grants)], more='[egress]\nallow_private = ["127.0.0.1"]\n') as sidecar:
        async with sidecar.channel() as channel:
            tools = ToolClient(sidecar, channel)
            answer = await tools.details("http_request", method="PUT", url=f"{web.url}/x", body='{"a":1}')
            assert await tools.reason("http_request", method="PUT", url="https://other.example/") == "host_not_granted"
    assert answer["status"] == 200
    assert [(method, path, body) for method, path, _, body in web.requests] == [("PUT", "/x", b'{"a":1}')]
