"""A zygote, or a child, that lies to its fork supervisor, or dies while it is set up, at any step of a fork.

The plugin's import may have changed everything in them. No call may get a process that is not what was looked at, nor
another call's; who waits is answered; and a plugin beside is served.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest
from fumehood_sandbox import cgroups
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.plugin import WorkerSpec

from .bench import FOLDER, Bench, fork_supervisors

pytestmark = pytest.mark.promise("S703")

_CALLS = 8
GONE, REFUSED, NOT_GIVEN_UP = "the zygote is gone", "refused", "the child did not give up what it must"


def _liar(bench: Bench, folder: Path, deed: str, *, at: int = 1, from_then_on: bool = False) -> WorkerSpec:
    shutil.copy(FOLDER / "liar.py", folder)
    asked = {"deed": deed, "at": at, "from_then_on": from_then_on}
    (folder / "deed").write_text(json.dumps(asked))
    return bench.spec("liar", folder=folder)


def _open_in(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


DEEDS = {
    # Two forks at once are taken for each other: who speaks first, or ends first, decides by what it is found.
    "the number before": "",
    "refused": REFUSED,
    "refused by a number that is none": "attendant",
    "garbage": GONE,
    "nothing": GONE,
    "flood": GONE,
    "dies when it is met": "",
    "gives nothing up": "the child has capabilities",
    "dies while it gives up": NOT_GIVEN_UP,
    "dies when it is set": "",
    "never is set": NOT_GIVEN_UP,
    "never answers": "no child after",
    "dies before it is met": "no child after",
}
_SILENT = {"flood", "never is set", "never answers"}
"""What a plugin beside might have to wait for."""


@pytest.mark.parametrize(("deed", "problem"), DEEDS.items())
async def test_no_call_gets_a_child_that_is_not_what_it_says(
    bench: Bench, tmp_path: Path, deed: str, problem: str
) -> None:
    with pytest.raises(WorkerUnavailableError) as caught:
        await bench.run("x", spec=_liar(bench, tmp_path, deed, from_then_on=True))
    assert re.search(problem, caught.value.error.message)
    if deed in _SILENT:
        assert await bench.run("result = 'beside'") == "beside"


@pytest.mark.parametrize(
    "deed", ["the next one's number", "starts twice", "starts for a sibling too", "garbage", "dies when it is set"]
)
async def test_lie_at_a_later_fork_costs_no_call_its_answer(bench: Bench, tmp_path: Path, deed: str) -> None:
    """At each zygote's fourth: its zygote is replaced, with all children that were requested of it."""
    spec = _liar(bench, tmp_path, deed, at=4)
    answers = [await bench.run(f"{number}", spec=spec) for number in range(_CALLS)]
    assert answers == [f"{number}" for number in range(_CALLS)]


@pytest.mark.parametrize("deed", ["the next one's number", "starts for a sibling too"])
async def test_forks_at_once_of_which_one_lies_give_no_call_anothers_answer(
    bench: Bench, tmp_path: Path, deed: str
) -> None:
    spec = _liar(bench, tmp_path, deed, at=2)
    calls = [bench.run(f"{number}", spec=spec) for number in range(_CALLS)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for number, answer in enumerate(answers):
        assert answer == f"{number}" or isinstance(answer, WorkerUnavailableError), (number, answer)
    assert await bench.run("result = 'beside'") == "beside"


async def test_descriptors_that_a_child_sends_along_are_not_kept(bench: Bench, tmp_path: Path) -> None:
    spec = _liar(bench, tmp_path, "descriptors", from_then_on=True)
    assert await bench.run("x", spec=spec) == "x"
    (supervisor,) = fork_supervisors()
    before = _open_in(supervisor)
    for number in range(_CALLS):
        assert await bench.run(f"{number}", spec=spec) == f"{number}"
    await bench.until(lambda: _open_in(supervisor) <= before)


async def test_child_that_stays_in_the_leaf_of_its_zygote_gets_no_call(bench: Bench, tmp_path: Path) -> None:
    if cgroups().joining_thread is None:
        pytest.skip("a child is moved into its leaf here, and doesn't join it by itself")
    with pytest.raises(WorkerUnavailableError) as caught:
        await bench.run("x", spec=_liar(bench, tmp_path, "stays in the zygote's leaf", from_then_on=True))
    assert "not in the leaf" in caught.value.error.message
