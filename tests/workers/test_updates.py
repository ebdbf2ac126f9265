"""What a plugin says of a call that goes on, in whatever language it is written."""

from __future__ import annotations

import pytest
from fumehood.v1 import plugin_pb2
from fumehood_server.workers.wire import messages


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_number_that_is_not_finite_counts_as_absent_and_the_rest_is_told(number: str) -> None:
    for progress, total in ((float(number), 2.0), (1.0, float(number)), (1.0, 2.0)):
        read = messages.update(plugin_pb2.Update(message="m", progress=progress, total=total), 1)
        assert read.message == "m"
        assert read.progress == (1.0 if progress == 1.0 else None)
        assert read.total == (2.0 if total == 2.0 else None)
