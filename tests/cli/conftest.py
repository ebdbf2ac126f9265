"""One real sidecar for the client's commands, and a fake one for what a real one can't be brought to say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.fake import FakeSidecar, running_fake
from tests.sidecar import Sidecar, running_sidecar, write_plugin

SAMPLE = '''
    import time
    from typing import Annotated, Literal
    from fumehood_sdk import Blob, Content, Context, Plugin, Text, ToolError
    from pydantic import BaseModel, Field

    plugin = Plugin("sample", version="1.0.0")

    class Sum(BaseModel):
        total: int

    @plugin.tool(side_effects="none", idempotent=True)
    def add_up(numbers: list[int], times: Annotated[int, Field(ge=1, le=10)] = 1) -> Sum:
        """Add numbers up. Returns their total.

        Args:
            numbers: What to add.
            times: How often.
        """
        return Sum(total=sum(numbers) * times)

    @plugin.tool(side_effects="none")
    def say(text: str, style: Literal["plain", "loud"] = "plain", note: str | None = None) -> str:
        """Say a text."""
        return text.upper() if style == "loud" else text

    @plugin.tool(side_effects="none")
    def fail(reason: str) -> str:
        """Fail on purpose."""
        raise ToolError("it went wrong; try another", reason=reason)

    @plugin.tool(side_effects="none", timeout_s=50)
    def steps(count: int, ctx: Context, hang: bool = False) -> str:
        """Take steps, one update each."""
        for number in range(1, count + 1):
            ctx.update(f"step {number}", progress=number, total=count)
        while hang:
            ctx.sleep(60)
        return "done"

    @plugin.tool(side_effects="write", requires=["write"])
    def keep(text: str) -> str:
        """Keep a text."""
        return text
'''


@pytest.fixture(scope="session")
def plugin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plugin(tmp_path_factory.mktemp("cli") / "sample", "sample", SAMPLE)


@pytest.fixture(scope="package")
def sidecar(plugin_folder: Path) -> Iterator[Sidecar]:
    with running_sidecar([plugin_folder, plugin_folder.parent / "absent"]) as running:
        yield running


@pytest.fixture
def fake() -> Iterator[FakeSidecar]:
    with running_fake() as running:
        yield running
