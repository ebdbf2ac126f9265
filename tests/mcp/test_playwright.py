"""Playwright's MCP server with a Chromium in its sandbox: pages of granted hosts, and nothing else of this machine."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import platform
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fumehood_sandbox
import psutil
import pytest
from fumehood.v1 import plugin_service_pb2, tool_pb2
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from mcp.types import ImageContent, TextContent

from tests.mcp.official_table import documented_levels, served_levels
from tests.mcp.support import Caller
from tests.mcp_door.support import MODERN, http_client, url_of
from tests.sidecar import Sidecar, running_sidecar

INSTALLED = Path(__file__).parent / "playwright"
BROWSER = Path("/usr/lib/chromium/chromium-headless-shell")
ALLOWED = ("browser_navigate", "browser_click", "browser_evaluate", "browser_run_code_unsafe")
PNG = b"\x89PNG\r\n"
BOUND_S = 60.0


def could_be_installed() -> bool:
    """Whether `make setup` can have the browser here: Debian's package, as root."""
    with contextlib.suppress(OSError):
        return os.geteuid() == 0 and platform.freedesktop_os_release().get("ID") == "debian"
    return False


pytestmark = [
    pytest.mark.slow("starts a browser in a sandbox, some seconds of processor"),
    pytest.mark.skipif(
        not BROWSER.exists() and not ("CI" in os.environ and could_be_installed()),
        reason=f"needs Debian's chromium-headless-shell ({BROWSER}): make setup",
    ),
]

PAGE = """<!doctype html><title>Cabinet</title><h1>A cabinet for fumes</h1>
<button onclick="this.textContent = 'Air is drawn'">Draw air</button>"""
ASKING = """<!doctype html><title>Asking</title>
<script>answer = fetch("http://127.0.0.1:PORT/").then(got => got.text()).catch(error => "refused: " + error)</script>"""


class Pages(http.server.BaseHTTPRequestHandler):
    """A page at each path, but `/to/PORT`, which redirects, and `/asks/PORT`, whose script asks another server."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Site)
        self.server.asked.append(self.path)
        _, first, *rest = self.path.split("/")
        if first == "to":
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{rest[0]}/")
        else:
            self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        self.wfile.write((ASKING.replace("PORT", rest[0]) if first == "asks" else PAGE).encode())

    def log_message(self, *_: object) -> None:
        pass


class Site(http.server.ThreadingHTTPServer):
    """A server of this machine that remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Pages)
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def page(self) -> str:
        """What it answers to who may ask it."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.server_port, timeout=BOUND_S)) as asking:
            asking.request("GET", "/")
            return asking.getresponse().read().decode()


@contextmanager
def site() -> Iterator[Site]:
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def playwright_plugin(folder: Path) -> Path:
    """The package as it is published, without its own check of files: what holds here is the sandbox."""
    modules = INSTALLED / "node_modules"
    assert modules.is_dir(), "Playwright's MCP server is not there: make setup"
    assert BROWSER.exists(), f"{BROWSER} is not there: make setup"
    folder.mkdir(parents=True)
    shutil.copytree(modules, folder / "node_modules", symlinks=True, copy_function=os.link)
    shutil.copy(INSTALLED / "sockets_within.cjs", folder)
    command = [
        *("node", "--require", "./sockets_within.cjs", "node_modules/@playwright/mcp/cli.js"),
        *("--headless", "--isolated", "--no-sandbox", "--executable-path", str(BROWSER)),
        *("--output-dir", "/tmp/output", "--allow-unrestricted-file-access"),  # noqa: S108 - the sandbox's own
        *("--timeout-action", "60000"),  # a machine may have several things to do
    ]
    (folder / "plugin.toml").write_text(
        f'[plugin]\nname = "playwright"\nversion = "1.0.0"\nkind = "mcp"\ncommand = {json.dumps(command)}\n'
        "[plugin.limits]\nprocesses = 256\nscratch_bytes = 268435456\nfile_size_bytes = 268435456\n"
        # Chromium asks no proxy for this machine's own addresses, where the pages of these tests are.
        '[plugin.environment]\nNO_PROXY = "<-loopback>"\nno_proxy = "<-loopback>"\n'
    )
    return folder


@dataclass(frozen=True)
class Hosted:
    """A sidecar with the server, and what it was granted and was not."""

    sidecar: Sidecar
    granted: Site
    other: Site
    readable: Path
    private: Path


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    folder = tmp_path_factory.mktemp("playwright")
    readable, private = folder / "readable", folder / "private"
    for each in (readable, private):
        each.mkdir()
        each.chmod(0o777)  # what is refused is refused by the sandbox, not by the mode
        (each / "note.html").write_text(f"<p>a {each.name} note")
    plugin = playwright_plugin(folder / "playwright")
    with site() as granted, site() as other:
        grants = (
            'max_side_effects = "external"\none_process = true\n'
            f'hosts = ["127.0.0.1:{granted.server_port}"]\nallow_private = ["127.0.0.1"]\nread = ["{readable}"]\n'
        )
        allowed = "".join(f'[plugin.tools.{tool}]\npermission = "allow"\n' for tool in ALLOWED)
        door = '[mcp]\nlisten = "127.0.0.1:0"\nallow_anonymous = true\n'
        with running_sidecar([(plugin, grants + allowed)], more=door) as sidecar:
            yield Hosted(sidecar, granted, other, readable, private)


@pytest.fixture
async def caller(hosted: Hosted) -> AsyncIterator[Caller]:
    async with hosted.sidecar.channel() as channel:
        yield Caller(channel)


async def shown(caller: Caller, url: str) -> str:
    """What is to be seen after going to a page, or why there is none."""
    gone = await caller.call("browser_navigate", BOUND_S, url=url)
    return f"{gone.error.message}\n{await caller.text('browser_snapshot')}"


async def test_annotations_of_playwright_come_to_their_levels(caller: Caller) -> None:
    tools = await caller.tools()
    assert {name: tool.availability.reasons for name, tool in tools.items() if not tool.availability.available} == {}
    assert served_levels(tools, "playwright") == documented_levels("playwright")
    assert tools["browser_type"].permission == tool_pb2.PERMISSION_REQUIRE_APPROVAL
    assert tools["browser_snapshot"].permission == tool_pb2.PERMISSION_ALLOW


async def test_page_is_read_shown_and_clicked(caller: Caller, hosted: Hosted) -> None:
    assert "A cabinet for fumes" in await shown(caller, f"{hosted.granted.url}/")
    picture = await caller.call("browser_take_screenshot", scale="css")
    assert not picture.is_error, picture.error
    (image,) = (each.blob for each in picture.content if each.HasField("blob"))
    assert image.media_type == "image/png"
    assert image.data.startswith(PNG)
    clicked = await caller.call("browser_click", BOUND_S, target="button")
    assert not clicked.is_error, clicked.error
    read = await caller.call("browser_snapshot")
    assert "Air is drawn" in read.content[0].text, "it is the page that was clicked: one process for every level"
    assert read.sandbox.side_effects == tool_pb2.SIDE_EFFECTS_EXTERNAL
    assert {layer.name: layer.weaker for layer in read.sandbox.layers}["levels"], "and its receipt says so"


async def test_mcp_client_reads_shows_and_clicks_a_page(hosted: Hosted) -> None:
    async with http_client(url_of(hosted.sidecar), MODERN) as client:
        gone = await client.call_tool("browser_navigate", {"url": f"{hosted.granted.url}/door"})
        assert not gone.is_error, gone
        read = await client.call_tool("browser_snapshot", {})
        assert isinstance(read.content[0], TextContent)
        assert "Draw air" in read.content[0].text
        picture = await client.call_tool("browser_take_screenshot", {"scale": "css"})
        assert [each.mime_type for each in picture.content if isinstance(each, ImageContent)] == ["image/png"]
        await client.call_tool("browser_click", {"target": "button"})
        assert "Air is drawn" in str((await client.call_tool("browser_snapshot", {})).content)
        refused = await client.call_tool("browser_navigate", {"url": f"{hosted.other.url}/door"})
        assert "A cabinet for fumes" not in str(refused)
        assert hosted.other.asked == []


async def test_hosts_that_are_not_granted_are_reached_by_no_link_redirect_or_script(
    caller: Caller, hosted: Hosted
) -> None:
    granted, other = hosted.granted, hosted.other
    assert "A cabinet for fumes" in other.page(), "outside, it answers"
    other.asked.clear()
    for url in (f"{granted.url}/to/{granted.server_port}", f"{granted.url}/"):
        assert "A cabinet for fumes" in await shown(caller, url)
    for url in (f"{granted.url}/to/{other.server_port}", f"{other.url}/", "http://169.254.169.254/latest/meta-data/"):
        seen = await shown(caller, url)
        assert "is not granted" in seen, seen
    for target, says in ((granted, "A cabinet for fumes"), (other, "refused: TypeError")):
        await shown(caller, f"{granted.url}/asks/{target.server_port}")
        assert says in await caller.text("browser_evaluate", function="() => window.answer")
    assert other.asked == []


async def test_files_are_read_where_they_are_granted_alone(caller: Caller, hosted: Hosted) -> None:
    assert "a readable note" in await shown(caller, f"file://{hosted.readable}/note.html")
    hidden = await shown(caller, f"file://{hosted.private}/note.html")
    assert "ERR_FILE_NOT_FOUND" in hidden
    assert "a private note" not in hidden
    own = (Path(fumehood_sandbox.__file__).parent / "etc" / "passwd").read_text().splitlines()
    users = await shown(caller, "file:///etc/passwd")
    assert own[0] in users, "the sandbox's own"
    assert [each for each in Path("/etc/passwd").read_text().splitlines() if each not in own and each in users] == []


INTRUDING = """async page => {
    const node = page.constructor.constructor("return process")();
    const [fs, net, children] = ["fs", "net", "child_process"].map(name => node.getBuiltinModule(name));
    const tried = work => { try { return String(work()); } catch (error) { return error.code; } };
    return JSON.stringify({
        granted: tried(() => fs.readFileSync(READABLE)),
        read: tried(() => fs.readFileSync(PRIVATE)),
        write: tried(() => fs.writeFileSync(READABLE, "")),
        dial: await new Promise(done => net.connect(PORT, "127.0.0.1", () => done("done"))
            .on("error", error => done(error.code))),
        left: tried(() => children.spawn("sleep", ["3600"], { detached: true, stdio: "ignore" }).pid > 0),
    });
}"""
"""The most that a page could come to which takes over the browser and what drives it."""


def intruding(hosted: Hosted) -> str:
    code = INTRUDING.replace("PORT", str(hosted.other.server_port))
    for name, folder in (("READABLE", hosted.readable), ("PRIVATE", hosted.private)):
        code = code.replace(name, json.dumps(str(folder / "note.html")))
    return code


async def test_code_of_the_server_itself_is_held_as_its_pages_are(caller: Caller, hosted: Hosted) -> None:
    said = await caller.text("browser_run_code_unsafe", code=intruding(hosted))
    outcome = json.loads(json.loads(said.splitlines()[1]))
    assert outcome.pop("granted") == "<p>a readable note", "control: it runs, and reads what is granted"
    assert outcome.pop("dial") in {"EACCES", "ECONNREFUSED"}, "by Landlock; without its rules on TCP, by the namespace"
    assert outcome == {"read": "ENOENT", "write": "EROFS", "left": "true"}
    assert hosted.other.asked == []


async def test_no_process_of_the_browser_survives_its_worker(caller: Caller, hosted: Hosted) -> None:
    await shown(caller, f"{hosted.granted.url}/")
    await caller.text("browser_run_code_unsafe", code=intruding(hosted))
    running = psutil.Process(hosted.sidecar.process.pid).children(recursive=True)
    held = [each for each in running if each.name() in {"sleep", BROWSER.name}]
    assert {each.name() for each in held} == {"sleep", BROWSER.name}, "one of them in a session of its own"
    async with hosted.sidecar.channel() as channel:
        plugins = PluginServiceStub(channel)
        await plugins.DisablePlugin(plugin_service_pb2.DisablePluginRequest(name="playwright"))
        _, alive = psutil.wait_procs(held, timeout=BOUND_S)
        await plugins.EnablePlugin(plugin_service_pb2.EnablePluginRequest(name="playwright"))
    assert alive == []
