"""MCP servers over Streamable HTTP, reached by the sandbox's relay alone: the official SDK's server, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from fumehood.v1 import mcp_service_pb2 as mcp_pb
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.mcp_service_pb2_grpc import McpServiceStub
from fumehood_server.plugins.manifest import try_manifest

from tests import preloaded
from tests.cli.command import fumehood
from tests.mcp.support import SERVERS, Caller
from tests.sidecar import Sidecar, running_sidecar

TOKEN = "t0ken-value"  # noqa: S105 - a test's
VARIANTS = {"new": (), "old": ("legacy",), "plain": ("json",)}
EACH = pytest.mark.parametrize("prefix", VARIANTS)
TOOLS = ("big", "cancellations", "change", "echo", "end_session", "seen", "slow")


@contextlib.contextmanager
def remote_server(*words: str, program: str = "remote.py") -> Iterator[int]:
    """The server as a process of its own. Its port."""
    code = f"import runpy; runpy.run_path({str(SERVERS / program)!r}, run_name='__main__')"
    with preloaded.Popen([*preloaded.PYTHON, "-c", code, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def remote_plugin(folder: Path, url: str, headers: str = "", more: str = "") -> Path:
    """A plugin of kind `mcp` for a server at a URL."""
    folder.mkdir(parents=True, exist_ok=True)
    head = f'[plugin]\nname = "{folder.name}"\nversion = "1.0.0"\nkind = "mcp"\nurl = "{url}"\n{more}\n'
    (folder / "plugin.toml").write_text(f"{head}[plugin.headers]\n{headers}\n" if headers else head)
    return folder


def granted(port: int, *allowed: str, secrets: str = "token") -> str:
    """Grants of a server on loopback, and its tools that run without an approval."""
    tools = "\n".join(f'[plugin.tools."{each}"]\npermission = "allow"' for each in allowed)
    grants = f'hosts = ["127.0.0.1:{port}"]\nallow_private = ["127.0.0.1"]\nsecrets = {json.dumps(secrets.split())}'
    return f'max_side_effects = "external"\n{grants}\n{tools}\n'


@dataclass(frozen=True)
class Hosted:
    sidecar: Sidecar
    secrets: str


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> str:
    """`[secrets.token]`."""
    secret = tmp_path_factory.mktemp("secret") / "token"
    secret.write_text(TOKEN)
    secret.chmod(0o600)
    return f'[secrets.token]\nfile = "{secret}"\n'


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory, secrets: str) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("remote")
    readings = ("resources/list", "resources/read", "prompts/list", "prompts/get")
    with contextlib.ExitStack() as stack:
        plugins = []
        for name, words in VARIANTS.items():
            port = stack.enter_context(remote_server(*words, f"token={TOKEN}"))
            headers = 'Authorization = { secret = "token", prefix = "Bearer " }\nX-Tenant = "acme"'
            plugin = remote_plugin(folder / name, f"http://127.0.0.1:{port}/mcp", headers)
            allowed = granted(port, *TOOLS, *readings)
            plugins.append((plugin, f'prefix = "{name}_"\n{allowed}'))
        yield stack.enter_context(running_sidecar(plugins, more=secrets))


@pytest.fixture
async def caller(sidecar: Sidecar) -> AsyncIterator[Caller]:
    async with sidecar.channel() as channel:
        yield Caller(channel)


@EACH
async def test_tools_are_external_whatever_they_say_and_are_called(caller: Caller, prefix: str) -> None:
    tools = {name: tool for name, tool in (await caller.tools()).items() if name.startswith(f"{prefix}_")}
    assert sorted(tools) == [f"{prefix}_{each}" for each in TOOLS]
    assert {tool.definition.side_effects for tool in tools.values()} == {tool_pb2.SIDE_EFFECTS_EXTERNAL}
    assert {tool.availability.available for tool in tools.values()} == {True}
    result = await caller.call(f"{prefix}_echo", text="ünï\n")
    assert [each.text for each in result.content] == ["ünï\n"]
    assert json.loads(result.details_json) == {"result": "ünï\n"}
    assert result.sandbox.side_effects == tool_pb2.SIDE_EFFECTS_EXTERNAL


@EACH
async def test_header_fields_reach_the_server_and_the_secrets_value_nobody_else(
    sidecar: Sidecar, caller: Caller, prefix: str
) -> None:
    assert await caller.text(f"{prefix}_seen", name="X-Tenant") == "acme"
    shown = await caller.text(f"{prefix}_seen", name="Authorization")
    assert TOKEN not in shown
    assert "token" in shown
    assert TOKEN not in sidecar.stderr()
    revision = await caller.text(f"{prefix}_seen", name="MCP-Protocol-Version")
    assert revision == ("2025-11-25" if prefix == "old" else "2026-07-28")


@pytest.mark.parametrize("prefix", ["new", "old"])
async def test_progress_becomes_updates_and_cancelling_reaches_the_server(caller: Caller, prefix: str) -> None:
    request = pb.CallToolRequest(tool=f"{prefix}_slow", call_id=f"slow-{prefix}")
    updates = []
    async for event in caller.stub.StreamTool(pb.StreamToolRequest(call=request)):
        if event.WhichOneof("event") == "update":
            updates.append(event.update)
            if len(updates) == 2:
                await caller.stub.CancelCall(pb.CancelCallRequest(call_id=f"slow-{prefix}"))
        elif event.WhichOneof("event") == "finished":
            assert event.finished.error.code == "CANCELLED_SIGNAL"
    assert updates[0].message == "step 1"
    while await caller.text(f"{prefix}_cancellations") == "0":  # the server hears of it a moment later
        pass


@EACH
async def test_many_calls_go_side_by_side(caller: Caller, prefix: str) -> None:
    texts = [str(number) for number in range(60)]
    assert await asyncio.gather(*(caller.text(f"{prefix}_echo", text=text) for text in texts)) == texts


@EACH
async def test_result_that_is_too_large_is_refused_and_harms_no_other(caller: Caller, prefix: str) -> None:
    result = await caller.call(f"{prefix}_big", size=20_000_000)
    assert result.is_error
    assert await caller.text(f"{prefix}_echo", text="on") == "on"


@EACH
async def test_resources_and_prompts_are_read_at_level_external(sidecar: Sidecar, prefix: str) -> None:
    async with sidecar.channel() as channel:
        mcp = McpServiceStub(channel)
        listed = await mcp.ListResources(mcp_pb.ListResourcesRequest(plugin=prefix))
        assert [each.uri for each in listed.resources] == ["notes://one"]
        read = await mcp.ReadResource(mcp_pb.ReadResourceRequest(plugin=prefix, uri="notes://one"))
        assert [each.text for each in read.contents] == ["the note"]
        assert read.reading.sandbox.side_effects == tool_pb2.SIDE_EFFECTS_EXTERNAL
        values = [mcp_pb.McpPromptValue(name="whom", value="you")]
        got = await mcp.GetPrompt(mcp_pb.GetPromptRequest(plugin=prefix, name="greet", arguments=values))
        assert [each.content.text for each in got.messages] == ["Greet you."]


async def test_session_that_the_server_ends_is_begun_anew_unseen(caller: Caller) -> None:
    assert await caller.text("old_end_session") == "ended"
    texts = [str(number) for number in range(8)]
    assert await asyncio.gather(*(caller.text("old_echo", text=text) for text in texts)) == texts


async def test_host_that_is_not_granted_is_never_asked_beside_one_that_is(tmp_path: Path, secrets: str) -> None:
    with remote_server() as port, remote_server() as other:
        url = "http://127.0.0.1:{}/mcp"
        plugins = [
            (remote_plugin(tmp_path / "good", url.format(port)), f'prefix = "good_"\n{granted(port, "echo")}'),
            (remote_plugin(tmp_path / "wrong", url.format(other)), f'prefix = "wrong_"\n{granted(port, "echo")}'),
            (
                remote_plugin(tmp_path / "low", url.format(port)),
                f'prefix = "low_"\nhosts = ["127.0.0.1:{port}"]\nallow_private = ["127.0.0.1"]',
            ),
            (
                remote_plugin(tmp_path / "inner", url.format(port)),
                f'prefix = "inner_"\nmax_side_effects = "external"\nhosts = ["127.0.0.1:{port}"]',
            ),
        ]
        with running_sidecar(plugins, more=secrets) as sidecar:
            async with sidecar.channel() as channel:
                caller = Caller(channel)
                assert await caller.text("good_echo", text="hi") == "hi"
                assert {name.partition("_")[0] for name in await caller.tools()} == {"good"}
            for name, expected in (
                ("wrong", "host_not_granted"),
                ("low", "level_not_granted"),
                ("inner", "address_not_public"),
            ):
                assert expected in str(sidecar.logged(event="plugin_refused", plugin=name)["reasons"]), name
            assert sidecar.logged(event="plugin_loaded", plugin="good")["reasons"] == []
            sidecar.signal()
            assert sidecar.wait() == 0  # what it had to say is written by then
            events = [line for line in sidecar.log() if line["event"] == "egress"]
            reached = {hop["port"] for line in events for hop in line["hops"] if hop["address"]}
            assert reached == {port}


async def test_tool_that_changes_after_the_pin_is_refused_once_it_is_listed_anew(tmp_path: Path, secrets: str) -> None:
    with remote_server() as port:
        plugin = remote_plugin(tmp_path / "turncoat", f"http://127.0.0.1:{port}/mcp", more='isolation = "call"')
        with running_sidecar([(plugin, granted(port, "echo", "change"))], more=secrets) as sidecar:
            async with sidecar.channel() as channel:
                caller = Caller(channel)
                assert await caller.text("echo", text="as pinned") == "as pinned"
                assert await caller.text("change") == "changed"
                result = await caller.call("echo", text="?")
                assert result.error.code == "CONFIG_PLUGIN_INVALID", result
                assert "echo: description" in result.error.message


async def test_server_that_refuses_or_redirects_is_told_of_in_words(tmp_path: Path, secrets: str) -> None:
    with remote_server(f"token={TOKEN}") as port:
        for name, path, headers, expected in (
            ("silent", "/mcp", "", "HTTP status 401 (Bearer): [plugin.headers] can have a secret in a header field."),
            (
                "wrong",
                "/mcp",
                'Authorization = "Bearer other"',
                "HTTP status 401 (Bearer): [plugin.headers] has the wrong secret, or one that is not granted",
            ),
            ("moved", "/moved", f'Authorization = "Bearer {TOKEN}"', "redirect"),
        ):
            plugin = remote_plugin(tmp_path / name, f"http://127.0.0.1:{port}{path}", headers)
            with running_sidecar([(plugin, granted(port))], more=secrets) as sidecar:
                async with sidecar.channel() as channel:
                    assert await Caller(channel).tools() == {}
                assert expected in str(sidecar.logged(event="plugin_refused", plugin=name)["reasons"])


def test_plugin_is_added_once_its_host_is_granted(tmp_path: Path) -> None:
    with remote_server() as port:
        plugin = remote_plugin(tmp_path / "far", f"http://127.0.0.1:{port}/mcp")
        (tmp_path / "fumehood.toml").write_text('[egress]\nallow_private = ["127.0.0.1"]\n')
        add = ("plugin", "add", str(plugin), "--yes")
        for granted, expected in (
            ((), 'takes the level "external"'),
            (("--max-side-effects", "external"), "a host which is not granted"),
            (("--max-side-effects", "external", "--host", f"127.0.0.1:{port + 1}"), "a host which is not granted"),
        ):
            refused = fumehood(*add, *granted, folder=tmp_path)
            assert refused.status == 1
            assert expected in refused.stdout + refused.stderr, refused
        done = fumehood(*add, "--max-side-effects", "external", "--host", f"127.0.0.1:{port}", folder=tmp_path)
        assert done.status == 0, done
        assert f'hosts = ["127.0.0.1:{port}"]' in (tmp_path / "fumehood.toml").read_text()
        checked = fumehood("plugin", "check", str(plugin), "--json", folder=tmp_path)
        assert [each["side_effects"] for each in checked.json["tools"]] == ["external"] * len(TOOLS)


async def test_tls_is_verified_inside_the_sandbox(tmp_path: Path, secrets: str) -> None:
    authority, other = trustme.CA(), trustme.CA()
    known, unknown = (each.issue_cert("127.0.0.1") for each in (authority, other))
    words = []
    for name, certificate in (("known", known), ("unknown", unknown)):
        chain, key = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        certificate.private_key_and_cert_chain_pem.write_to_path(str(chain))
        certificate.private_key_pem.write_to_path(str(key))
        words.append(f"tls={chain},{key}")
    with remote_server(words[0]) as port, remote_server(words[1]) as wrong:
        plugins = []
        for name, at in (("good", port), ("bad", wrong)):
            plugin = remote_plugin(tmp_path / name, f"https://127.0.0.1:{at}/mcp", more='authorities = "ca.pem"')
            authority.cert_pem.write_to_path(str(plugin / "ca.pem"))
            plugins.append((plugin, f'prefix = "{name}_"\n{granted(at, "echo")}'))
        with running_sidecar(plugins, more=secrets) as sidecar:
            async with sidecar.channel() as channel:
                caller = Caller(channel)
                assert await caller.text("good_echo", text="over TLS") == "over TLS"
                assert {name.partition("_")[0] for name in await caller.tools()} == {"good"}
            assert "CERTIFICATE_VERIFY_FAILED" in json.dumps(sidecar.logged(event="plugin_refused", plugin="bad"))


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('url = "ftp://a.example/"', "ftp"),
        ('url = "https://user@a.example/mcp"', "url"),
        ('url = "https://a.example/mcp"\ncommand = ["python", "x.py"]', "remove one of them"),
        ('url = "https://a.example/mcp"\n[plugin.environment]\nA = "b"', "remove one of them"),
        ('url = "https://a.example/mcp"\n[plugin.headers]\nHost = "b"', "not the plugin's to set"),
        ('url = "https://a.example/mcp"\n[plugin.headers]\nX-A = "b\\nc"', "printable"),
        ('url = "https://a.example/mcp"\n[plugin.headers]\nX-A = { secret = "no such name" }', "name of a secret"),
        ('command = ["python", "x.py"]\n[plugin.headers]\nX-A = "b"', "for a server with `url`"),
    ],
)
def test_manifest_says_what_is_wrong(tmp_path: Path, lines: str, problem: str) -> None:
    (tmp_path / "plugin.toml").write_text(f'[plugin]\nname = "far"\nversion = "1"\nkind = "mcp"\n{lines}\n')
    read = try_manifest(tmp_path)
    assert problem in " ".join(str(each) for each in read.problems)
    (tmp_path / "plugin.toml").write_text(
        '[plugin]\nname = "far"\nversion = "1"\nkind = "mcp"\nurl = "https://a.example/mcp"\n'
        '[plugin.headers]\nX-A = "b"\nAuthorization = { secret = "token", prefix = "Bearer " }\n'
    )
    manifest = try_manifest(tmp_path).manifest
    assert manifest is not None
    assert manifest.remote is not None
    assert manifest.remote.host == "a.example:443"


async def test_operator_sets_no_other_level(tmp_path: Path, secrets: str) -> None:
    with remote_server() as port:
        plugin = remote_plugin(tmp_path / "far", f"http://127.0.0.1:{port}/mcp")
        lowered = f'{granted(port)}[plugin.tools.echo]\nside_effects = "read"\n'
        with running_sidecar([(plugin, lowered)], more=secrets) as sidecar:
            async with sidecar.channel() as channel:
                assert await Caller(channel).tools() == {}
            assert "whose tools are all external" in json.dumps(sidecar.logged(event="plugin_refused", plugin="far"))
