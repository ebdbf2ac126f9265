"""A Python plugin's definitions, learnt from its own code inside a real sandbox."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from fumehood_sandbox import Level
from fumehood_server.config import load_config
from fumehood_server.model.plugin import PluginState
from fumehood_server.plugins import Catalog, check_plugin
from fumehood_server.workers.output.logs import LogSink
from fumehood_server.workers.pools.describe import describe

from .support import LogLines, configure

CODE = '''
from typing import Annotated, Literal
from pathlib import Path
from pydantic import Field
from fumehood_sdk import Plugin

SEEN = Path("{secret}").exists()
plugin = Plugin("dice", version="1.0.0")


@plugin.tool(side_effects="none", idempotent=True)
def roll_dice(count: Annotated[int, Field(ge=1, le=10)], sides: Literal[4, 6, 8]) -> int:
    """Roll dice. Returns the sum of what they show."""
    return count * sides


if SEEN:
    plugin.tool(side_effects="none")(lambda: None)
'''


async def test_code_is_asked_within_a_sandbox_that_sees_nothing_of_the_operators(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    folder = tmp_path / "dice"
    folder.mkdir()
    (folder / "dice.py").write_text(CODE.replace("{secret}", str(secret)))
    (folder / "plugin.toml").write_text(
        '[plugin]\nname = "dice"\nversion = "1.0.0"\nkind = "python"\nentrypoint = "dice:plugin"\n'
    )
    ask = functools.partial(describe, logs=LogSink())
    config = load_config(configure(tmp_path, f'[[plugin]]\npath = "dice"\nread = ["{secret}"]\n'))
    catalog = await Catalog.load(config, describe=ask, log=LogLines())
    assert [plugin.reasons for plugin in catalog.plugins] == [()]
    assert catalog.plugins[0].state is PluginState.SERVING
    (tool,) = catalog.tools
    assert (tool.definition.name, tool.definition.side_effects, tool.definition.idempotent) == (
        "roll_dice",
        Level.NONE,
        True,
    )
    assert '"enum":[4,6,8]' in tool.definition.input_schema_json
    report = await check_plugin(folder, describe=ask)
    assert report.tools == (tool.definition,)
    assert [each.message for each in report.warnings if not each.tool] == []
    code = folder / "dice.py"
    code.write_text(code.read_text().replace("1.0.0", "1.1.0"))
    (warning,) = (each.message for each in (await check_plugin(folder, describe=ask)).warnings if not each.tool)
    assert '"1.1.0"' in warning


async def test_code_that_does_not_import_is_refused_with_its_last_words(tmp_path: Path) -> None:
    folder = tmp_path / "dice"
    folder.mkdir()
    (folder / "dice.py").write_text("raise RuntimeError('no dice today')\n")
    (folder / "plugin.toml").write_text(
        '[plugin]\nname = "dice"\nversion = "1.0.0"\nkind = "python"\nentrypoint = "dice:plugin"\n'
    )
    report = await check_plugin(folder, describe=functools.partial(describe, logs=LogSink()))
    assert not report.ok
    assert "no dice today" in report.problems[0].message
    assert f'"{folder}/dice.py", line 1' in report.problems[0].message


async def test_packages_of_a_virtual_environment_are_there_once_it_is_taken_in(tmp_path: Path) -> None:
    folder = tmp_path / "dice"
    site = folder / f".venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    site.mkdir(parents=True)
    (site / "sides.py").write_text("SIDES = 6\n")
    (folder / "dice.py").write_text("import sides\n" + CODE.replace("{secret}", "/nowhere"))
    (folder / "plugin.toml").write_text(
        '[plugin]\nname = "dice"\nversion = "1.0.0"\nkind = "python"\nentrypoint = "dice:plugin"\n'
    )
    ask = functools.partial(describe, logs=LogSink())
    report = await check_plugin(folder, describe=ask)
    assert "No module named 'sides'" in report.problems[0].message
    assert report.problems[0].remedy == "its .venv is ignored: a line `!.venv/` in .fumehoodignore takes it in"
    (folder / ".fumehoodignore").write_text("!.venv/\n")
    assert (await check_plugin(folder, describe=ask)).ok
