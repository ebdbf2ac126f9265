"""A real sidecar whose plugin's folder changes: what runs is what was pinned."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1 import plugin_service_pb2 as plugins_pb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.rpc.support import BOUND_S, call
from tests.sidecar import Sidecar, running_sidecar, write_plugin

pytestmark = pytest.mark.promise("S908")

_CODE = '''
import os
import sys
from pathlib import Path

from fumehood_sdk import Plugin

plugin = Plugin("lazy", version="1.0.0")
HERE = Path(__file__).parent


def _answer(name: str) -> str:
    sys.modules.pop(name, None)
    try:
        return __import__(name).TEXT
    except ImportError:
        return "not there"


@plugin.tool(side_effects="none", isolation="process")
def warm(name: str) -> str:
    """Import a module when asked, in a process that was there before."""
    return _answer(name)


@plugin.tool(side_effects="none", isolation="call")
def fresh(name: str) -> str:
    """Import a module when asked, in a process of its own."""
    return _answer(name)


@plugin.tool(side_effects="read")
def reads(name: str) -> str:
    """Import a module when asked, in another process."""
    return _answer(name)


@plugin.tool(side_effects="write", requires=("write",))
def overwrite(path: str, text: str) -> str:
    """Write to a file."""
    Path(path).write_text(text)
    return "written"


@plugin.tool(side_effects="none", isolation="process")
def names() -> list[str]:
    """What lies in the plugin's folder."""
    return sorted(os.listdir(HERE))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The author's, with a module for each test to change."""
    folder = write_plugin(tmp_path_factory.mktemp("house") / "lazy", "lazy", _CODE)
    for name in ("later", "linked", "listed"):
        (folder / f"{name}.py").write_text('TEXT = "pinned"\n')
    for name in (".git", "__pycache__", ".venv", ".pytest_cache"):
        (folder / name).mkdir()
        (folder / name / "planted.py").write_text('TEXT = "planted"\n')
    (folder.parent / "notes").mkdir()
    return folder


@pytest.fixture(scope="module")
def sidecar(folder: Path) -> Iterator[Sidecar]:
    grants = f'max_side_effects = "write"\nwrite = ["{folder.parent}/notes"]\n'
    grants += '[plugin.tools.overwrite]\npermission = "allow"\n'
    with contextlib.ExitStack() as stack:
        old_umask = os.umask(0o077)  # the sidecar's, which keeps no plugin from its own code
        try:
            started = stack.enter_context(running_sidecar([(folder, grants)]))
        finally:
            os.umask(old_umask)
        yield started


@pytest.fixture
async def tools(sidecar: Sidecar) -> AsyncIterator[ToolServiceStub]:
    async with sidecar.channel() as channel:
        yield ToolServiceStub(channel)


async def answer(tools: ToolServiceStub, tool: str, **arguments: Any) -> Any:
    result = (await tools.CallTool(call(tool, arguments), timeout=BOUND_S)).result
    assert not result.is_error, result
    return json.loads(result.details_json)


async def test_what_a_process_imports_later_is_what_was_pinned(folder: Path, tools: ToolServiceStub) -> None:
    assert await answer(tools, "warm", name="later") == "pinned"
    (folder / "later.py").write_text('TEXT = "changed"\n')
    (folder / "added.py").write_text('TEXT = "added"\n')
    for tool in ("warm", "fresh", "reads"):
        assert await answer(tools, tool, name="later") == "pinned"
        assert await answer(tools, tool, name="added") == "not there"


async def test_a_hard_link_in_a_granted_folder_does_not_lead_to_a_plugins_code(
    folder: Path, tools: ToolServiceStub
) -> None:
    assert await answer(tools, "warm", name="linked") == "pinned"
    link = folder.parent / "notes/linked.py"
    link.hardlink_to(folder / "linked.py")
    assert await answer(tools, "overwrite", path=str(link), text='TEXT = "ran"\n') == "written"
    assert "ran" in (folder / "linked.py").read_text()
    for tool in ("warm", "fresh", "reads"):
        assert await answer(tools, tool, name="linked") == "pinned"


async def test_history_caches_and_virtual_environments_are_not_there_to_be_imported(tools: ToolServiceStub) -> None:
    assert await answer(tools, "names") == ["later.py", "lazy.py", "linked.py", "listed.py", "plugin.toml"]


async def test_listing_plugins_and_calling_give_one_answer_whatever_happens_to_the_folder(
    folder: Path, tools: ToolServiceStub, sidecar: Sidecar
) -> None:
    (folder / "plugin.toml").touch()
    (folder / ".later.py.swp").touch()
    (folder / "listed.py").write_text('TEXT = "changed"\n')
    listed = await tools.ListTools(pb.ListToolsRequest(), timeout=BOUND_S)
    assert {tool.definition.name for tool in listed.tools} == {"warm", "fresh", "reads", "overwrite", "names"}
    async with sidecar.channel() as channel:
        found = await PluginServiceStub(channel).ListPlugins(plugins_pb.ListPluginsRequest(), timeout=BOUND_S)
    assert [plugin.state for plugin in found.plugins] == [plugins_pb.PLUGIN_STATE_SERVING]
    for tool in ("warm", "fresh", "reads"):
        assert await answer(tools, tool, name="listed") == "pinned"
