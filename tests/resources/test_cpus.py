"""The quota of processor time, on a real cgroup."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from fumehood_sandbox import Level, Limits, Policy, SandboxedProcess
from fumehood_sandbox.cgroup import Control, Leaf, cgroups
from fumehood_sandbox.cgroup.version import CPU_PERIOD_US

from tests.resources.leaves import LIMITS
from tests.resources.leaves import running as running_in
from tests.sandbox.harness import read_line, running

_PARENTS = [parent for parent in cgroups().parents if Control.QUOTA in parent.controls]

pytestmark = pytest.mark.promise("S609")

_SPINNERS = """
for _ in range(8):
    if os.fork() == 0:
        while True:
            pass
report("spinning")
signal.pause()
"""


def _leaf(process: SandboxedProcess) -> Path:
    """The folder of its leaf, in the hierarchy of the quota."""
    assert json.loads(read_line(process.stdout)) == "spinning"
    assert process.leaf is not None
    # Not looked for among the folders there: others' come and go meanwhile.
    (leaf,) = (Path(folder) for folder, (_, has) in process.leaf._folders.items() if Control.QUOTA in has)
    assert f"/{leaf.name}\n" in Path(f"/proc/{process.pids()[-1]}/cgroup").read_text()
    return leaf


@pytest.mark.skipif(not _PARENTS, reason="no cgroup with a quota of processor time")
@pytest.mark.parametrize("cpus", [1, 3])
def test_a_tree_has_as_many_processors_worth_of_time_as_its_limit_and_no_more(tmp_path: Path, cpus: int) -> None:
    """On a machine that is busy otherwise it gets less, which this can't tell from being held."""
    with running(tmp_path, _SPINNERS, Policy(level=Level.NONE, limits=Limits(cpus=cpus))) as process:
        leaf = _leaf(process)
        (detail,) = (layer.detail for layer in process.receipt.layers if layer.name == "cgroup")
        assert f"{cpus} processors" in detail
        assert _PARENTS[0].version.cpus_limit(str(leaf)) == cpus
        # The time within the periods, so that what is used while the other is read isn't counted against it.
        before, before_ns = _periods(leaf), _used_ns(leaf.name)
        while _periods(leaf) < before + 5:
            os.sched_yield()
        used_ns = _used_ns(leaf.name) - before_ns
        assert 0 < used_ns <= (_periods(leaf) - before + 1) * cpus * CPU_PERIOD_US * 1000


@pytest.mark.skipif(not _PARENTS, reason="no cgroup with a quota of processor time")
@pytest.mark.parametrize("identity", ["", "some plugin"])
def test_a_tree_yields_the_processors_to_who_launched_it(tmp_path: Path, identity: str) -> None:
    file, weight = ("cpu.shares", 256) if _PARENTS[0].version.name == "cgroup1" else ("cpu.weight", 25)
    with running(tmp_path, _SPINNERS, Policy(level=Level.NONE, identity=identity)) as process:
        leaf = _leaf(process)
        assert int(((leaf.parent if identity else leaf) / file).read_text()) == weight


@pytest.mark.skipif(not _PARENTS, reason="no cgroup with a quota of processor time")
@pytest.mark.parametrize(("owners", "least", "most"), [(("one", "other"), 0.35, 0.65), (("", ""), 0.0, 0.25)])
def test_leaves_of_an_owner_have_one_share_together(owners: tuple[str, str], least: float, most: float) -> None:
    """Of one processor that nine leaves of one want, and one leaf of another. Without owners each has a tenth."""
    many, few = owners
    processor = min(os.sched_getaffinity(0))
    code = f"os.sched_setaffinity(0, [{processor}])\nprint('spinning', flush=True)\nwhile True: pass"
    with contextlib.ExitStack() as stack:
        leaves = [_made(stack, owner) for owner in (few, *[many] * 9)]
        for leaf in leaves:
            stack.enter_context(running_in(code, leaf))
        _until_used(leaves, [0] * len(leaves), 0.3)
        before = [leaf.cpu_ns() or 0 for leaf in leaves]
        used = _until_used(leaves, before, 1.0)
    assert least < used[0] / sum(used) < most


def _until_used(leaves: Sequence[Leaf], before: Sequence[int], seconds: float) -> list[int]:
    """How long each has run since `before`, in nanoseconds, once all of them have so many seconds together."""
    while (
        sum(used := [(leaf.cpu_ns() or 0) - begun for leaf, begun in zip(leaves, before, strict=True)]) < seconds * 1e9
    ):
        os.sched_yield()
    return used


def _made(stack: contextlib.ExitStack, owner: str) -> Leaf:
    leaf = cgroups().leaf(LIMITS, owner=owner)
    assert leaf is not None
    stack.callback(leaf.discard)
    return leaf


def _periods(leaf: Path) -> int:
    """How many times the quota was renewed, as the kernel counts while somebody wants to run."""
    lines = dict(line.split() for line in (leaf / "cpu.stat").read_text().splitlines())
    return int(lines["nr_periods"])


def _used_ns(name: str) -> int:
    (parent,) = (parent for parent in cgroups().parents if Control.TIME in parent.controls)
    reading = parent.version.time
    return reading.number(Path(parent.folder, name, reading.name).read_bytes())


def test_receipt_says_where_nothing_bounds_the_processors(tmp_path: Path) -> None:
    for wanted in (True, False):
        with running(tmp_path, "report(1)", Policy(level=Level.NONE, cgroups=wanted)) as process:
            assert ("cpus" in process.receipt.weaker) is not (wanted and bool(_PARENTS))
