"""Resources and prompts of hosted MCP servers, to clients of the official SDK, in both revisions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import BlobResourceContents, EmbeddedResource, ImageContent, TextContent, TextResourceContents

from tests.callers.support import token_of
from tests.mcp.test_readings import shelf
from tests.sidecar import Sidecar, running_sidecar

from .support import MODES, http_client, stdio_client, url_of

pytestmark = pytest.mark.parametrize("mode", MODES)
CALLERS = """
[mcp]
listen = "127.0.0.1:0"

[[caller]]
name = "agent"
tools = ["*"]

[[caller]]
name = "reader"
tools = ["one/resources/*"]
"""
RULE = '[[policy.rule]]\nname = "ask"\ntools = ["two/prompts/get"]\npermission = "require_approval"\n'
URIS = ["shelf:text", "shelf:blob", "shelf:loud"]


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("shelves")
    plugins = [
        (shelf(folder / "one"), 'prefix = "one_"'),
        (shelf(folder / "shut"), 'prefix = "shut_"\nmax_side_effects = "none"'),
        (shelf(folder / "two", environment={"STATELESS": '"1"'}), 'prefix = "two_"'),
        (shelf(folder / "zero", environment={"BARE": '"1"'}), 'prefix = "zero_"'),
    ]
    with running_sidecar(plugins, more=CALLERS + RULE) as running:
        running.logged(event="mcp_serving")
        yield running


async def every(page_of: Callable[..., Awaitable[Any]], key: str) -> list[Any]:
    """All entries of all pages."""
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page = await page_of(cursor=cursor)
        found += getattr(page, key)
        cursor = page.next_cursor
        if not cursor:
            return found


def agent(sidecar: Sidecar, mode: str, name: str = "agent") -> Any:
    return http_client(url_of(sidecar), mode, token_of(sidecar.folder, name))


async def test_what_two_servers_have_is_listed_side_by_side_and_read_by_its_own_name(
    sidecar: Sidecar, mode: str
) -> None:
    async with agent(sidecar, mode) as client:
        resources = await every(client.list_resources, "resources")
        assert [each.uri for each in resources] == [
            f"fumehood://{plugin}/{uri}" for plugin in ("one", "two") for uri in URIS
        ]
        assert (resources[0].title, resources[0].mime_type, resources[0].size) == ("A text", "text/plain", 5)
        assert resources[0].annotations.priority == 0.5
        for each in (resources[0], resources[3]):
            (text,) = (await client.read_resource(each.uri)).contents
            assert isinstance(text, TextResourceContents)
            assert (text.uri, text.text) == (each.uri, "hello")
        blob = (await client.read_resource("fumehood://two/shelf:blob")).contents[0]
        assert isinstance(blob, BlobResourceContents)
        assert blob.blob == "AAE="


async def test_template_is_filled_in_behind_its_prefix(sidecar: Sidecar, mode: str) -> None:
    async with agent(sidecar, mode) as client:
        templates = await every(client.list_resource_templates, "resource_templates")
        assert [each.uri_template for each in templates] == [
            f"fumehood://{plugin}/shelf:file?{{path}}" for plugin in ("one", "two")
        ]
        held = templates[0].uri_template.replace("{path}", "/etc/shadow")
        with pytest.raises(MCPError, match=r"Permission|No such"):
            await client.read_resource(held)
        allowed = templates[0].uri_template.replace("file?{path}", "text")
        assert (await client.read_resource(allowed)).contents[0].text == "hello"


async def test_prompt_is_got_by_its_servers_name(sidecar: Sidecar, mode: str) -> None:
    async with agent(sidecar, mode) as client:
        prompts = await every(client.list_prompts, "prompts")
        assert [each.name for each in prompts] == ["one/greet", "two/greet"]
        assert [(each.name, each.required) for each in prompts[0].arguments] == [("whom", True)]
        got = await client.get_prompt("one/greet", {"whom": "you"})
        assert got.description == "Greets."
        text, image, resource = (each.content for each in got.messages[:3])
        assert isinstance(text, TextContent)
        assert text.text == "Greet you."
        assert isinstance(image, ImageContent)
        assert image.mime_type == "image/png"
        assert isinstance(resource, EmbeddedResource)
        assert resource.resource.uri == "fumehood://one/shelf:text"


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("shelf:text", -32602),
        ("fumehood://one", -32602),
        ("fumehood://nobody/shelf:text", -32602),
        ("fumehood://one/shelf:nothing", -32002),
        ("fumehood://one/shelf:malformed", -32000),
        ("fumehood://shut/shelf:text", -32000),
    ],
)
async def test_what_is_not_there_is_a_typed_error(sidecar: Sidecar, mode: str, uri: str, code: int) -> None:
    async with agent(sidecar, mode) as client:
        with pytest.raises(MCPError) as refused:
            await client.read_resource(uri)
        assert refused.value.code == code
        assert (await client.read_resource("fumehood://one/shelf:text")).contents


async def test_caller_is_listed_and_reads_what_its_rules_name(sidecar: Sidecar, mode: str) -> None:
    async with agent(sidecar, mode, "reader") as client:
        assert len(await every(client.list_resources, "resources")) == 3
        assert await every(client.list_prompts, "prompts") == []
        assert (await client.read_resource("fumehood://one/shelf:text")).contents
        for ask in (client.read_resource("fumehood://two/shelf:text"), client.get_prompt("one/greet")):
            with pytest.raises(MCPError) as refused:
                await ask
            assert refused.value.error.data["code"] == "TOOL_DENIED"


async def test_reading_that_needs_an_approval_says_which_and_asks_once(sidecar: Sidecar, mode: str) -> None:
    async def approval_of(client: Client) -> str:
        with pytest.raises(MCPError) as refused:
            await client.get_prompt("two/greet", {"whom": mode})
        data = refused.value.error.data
        assert data["code"] == "TOOL_APPROVAL_REQUIRED"
        return str(data["details"]["approval_id"])

    async with agent(sidecar, mode) as client:
        assert await approval_of(client) == await approval_of(client)
        assert (await client.get_prompt("one/greet", {"whom": mode})).messages


async def test_over_stdio_names_and_levels_narrow_what_is_read(sidecar: Sidecar, mode: str) -> None:
    async with stdio_client(sidecar.target, mode, "--tools", "two/resources/*") as client:
        assert {each.uri for each in await every(client.list_resources, "resources")} == {
            f"fumehood://two/{uri}" for uri in URIS
        }
        assert await every(client.list_prompts, "prompts") == []
        with pytest.raises(MCPError):
            await client.read_resource("fumehood://one/shelf:text")
    async with stdio_client(sidecar.target, mode, "--max-level", "none") as client:
        assert await every(client.list_resources, "resources") == []
        with pytest.raises(MCPError):
            await client.read_resource("fumehood://one/shelf:text")
    async with stdio_client(sidecar.target, mode, "--max-level", "read") as client:
        assert (await client.read_resource("fumehood://one/shelf:text")).contents


async def test_cursor_that_was_not_given_here_is_refused(sidecar: Sidecar, mode: str) -> None:
    async with agent(sidecar, mode) as client:
        for cursor in ("x", "WyJvbmUiXQ==", "bnVsbA=="):
            with pytest.raises(MCPError) as refused:
                await client.list_resources(cursor=cursor)
            assert refused.value.code == -32602
        assert (await client.list_resources()).resources
