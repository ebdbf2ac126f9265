"""Fixtures for every area: the real sidecar, started as its operator would."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.postgresql import PostgresServer, kept_files, running_server
from tests.sidecar import Sidecar, running_sidecar

_LONGEST = (
    "tests/resources/",
    "tests/sandbox/test_ordinary_user.py",
    "tests/attacks/",
    "tests/cli/test_serving.py",
    "tests/workers/test_per_call_pool.py",
    "tests/workers/test_cancelled_starts.py",
    "tests/landlock_only/",
    "tests/cli/test_plugin_",
    "tests/journal/test_two_sidecars.py",
    "tests/journal/test_outages.py",
    "tests/journal/test_postgresql.py",
    "tests/journal/test_large.py",
    "tests/recovery/",
    "tests/replay/",
    "tests/repository/test_wheels.py",
    "tests/rpc/test_recorded_calls.py",
    "tests/rpc/test_config_reload.py",
    "tests/rpc/test_memory.py",
    "tests/rpc/test_keepalive.py",
    "tests/isolation/",
    "tests/plugins/test_environments.py",
    "tests/secrets/test_secrets.py",
    "tests/examples/",
)


def pytest_configure(config: pytest.Config) -> None:
    """Let property tests take their time, and half as many examples as by default, and let signals interrupt.

    Hypothesis fails an example that takes 0.2 s, as on a busy machine. A shell starts what it has in the background
    with SIGINT ignored, nohup(1) ignores SIGHUP, and every process that a test starts would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import settings  # noqa: PLC0415 - takes a second, and those who switch it off don't need it

        settings.register_profile("busy", deadline=None, max_examples=50)
        settings.load_profile("busy")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, which was a third of the time, and have it pass over what is there then.

    None of that is garbage, and tests that ask for a collection do so a hundred times.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the longest files run first: one that is begun last keeps a processor idle at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """One for each process of pytest's. Each test makes a database of its own there."""
    with running_server(kept_files(tmp_path_factory)) as server:
        yield server


@pytest.fixture
def start_sidecar() -> Iterator[Callable[..., Sidecar]]:
    """`start_sidecar([folder, (folder, 'max_side_effects = "none"')], server="drain_s = 1")`, as often as wanted."""
    with ExitStack() as stack:

        def start(*arguments: Any, **more: Any) -> Sidecar:
            return stack.enter_context(running_sidecar(*arguments, **more))

        yield start
