"""Libraries that plugins use most, each imported by a zygote and called in a process that was forked for the call.

`make setup` installs numpy, so that `make check` holds the promise by it; `make test-libraries` installs all of them,
into the folder that LIBRARIES names.
"""

from __future__ import annotations

import asyncio
import os
import textwrap
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from fumehood_sandbox import Mount, PythonModule
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.plugin import Kind, WorkerSpec
from fumehood_server.plugins.launch.program import build
from fumehood_server.workers import LogSink, Pools

from tests.isolation.bench import BOUND_S, SETTINGS, Bench, made

_INSIDE = "/run/fumehood/libraries"
_ALL = os.environ.get("LIBRARIES")
_FOLDER = Path(_ALL or Path(__file__).parents[2] / "build" / "numpy")
_CODE = """
    {imports}
    from fumehood_sdk import Plugin

    plugin = Plugin("uses", version="1.0.0")

    @plugin.tool(side_effects="none", isolation="call")
    def run(code: str) -> object:
        \"\"\"Evaluate an expression.\"\"\"
        return eval(code)
"""
NUMPY = ("import numpy", "float((numpy.ones((300, 300)) @ numpy.ones((300, 300))).sum())", 27_000_000.0)
OTHERS = [
    ("import pandas", "int(pandas.DataFrame({'a': [1, 2], 'b': [3, 3]}).groupby('b').a.sum()[3])", 3),
    ("import lxml.etree", "lxml.etree.fromstring('<a><b>x</b></a>').findtext('b')", "x"),
    (
        "from cryptography.fernet import Fernet",
        "(lambda key: Fernet(key).decrypt(Fernet(key).encrypt(b'x')).decode())(Fernet.generate_key())",
        "x",
    ),
    ("import PIL.Image", "list(PIL.Image.new('RGB', (64, 64), 'red').resize((8, 8)).getpixel((0, 0)))", [255, 0, 0]),
    ("import httpx", "httpx.Request('GET', 'https://example.org/a?b=1').url.query.decode()", "b=1"),
    (
        "import sqlalchemy",
        "sqlalchemy.create_engine('sqlite://').connect().execute(sqlalchemy.text('select 6 * 7')).scalar()",
        42,
    ),
]
REFUSED = [("import polars", "other threads were started by its import")]

pytestmark = pytest.mark.promise("S707")
needs_all = pytest.mark.skipif(not _ALL, reason="LIBRARIES names no folder: run make test-libraries")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    logs = LogSink()
    async with asyncio.timeout(BOUND_S * 2), Pools(logs, SETTINGS) as pools:
        yield Bench(pools, logs)


def _spec(folder: Path, imports: str) -> WorkerSpec:
    """A plugin that imports this beside the libraries."""
    (folder / "uses.py").write_text(textwrap.dedent(_CODE.format(imports=imports)))
    built = build(Kind.PYTHON, folder, entrypoint="uses:plugin")
    assert isinstance(built.program, PythonModule)
    program = replace(built.program, path=(*built.program.path, _INSIDE))
    runtime = (*built.runtime, Mount(str(_FOLDER.resolve(strict=True)), _INSIDE))
    return made("uses", replace(built, program=program, runtime=runtime))


@pytest.mark.parametrize(
    ("imports", "code", "answer"),
    [pytest.param(*NUMPY, id="numpy"), *(pytest.param(*each, id=each[0], marks=needs_all) for each in OTHERS)],
)
async def test_library_is_imported_once_and_called_in_fresh_processes(
    bench: Bench, tmp_path: Path, imports: str, code: str, answer: object
) -> None:
    spec = _spec(tmp_path, imports)
    assert [await bench.run(code, spec=spec) for _ in range(2)] == [answer, answer]
    assert len(bench.zygotes(spec)) == 1


@needs_all
@pytest.mark.parametrize(("imports", "reason"), REFUSED)
async def test_library_that_starts_threads_whatever_it_is_told_is_refused_with_the_reason(
    bench: Bench, tmp_path: Path, imports: str, reason: str
) -> None:
    with pytest.raises(WorkerUnavailableError) as caught:
        await bench.run("1", spec=_spec(tmp_path, imports))
    assert reason in caught.value.error.message
