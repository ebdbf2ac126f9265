from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.telemetry import get_logger


@pytest.fixture
async def checks() -> AsyncIterator[DocumentChecks]:
    """With a process of its own, once something needs one."""
    async with DocumentChecks(get_logger()) as checks:
        yield checks
