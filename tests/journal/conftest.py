"""Journals in each of the databases that hold one, and two sidecars that share one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fumehood_server.config.database import Database
from fumehood_server.journal.place import DatabasePlace, FilePlace, Place

from tests.postgresql import PostgresServer
from tests.rpc.support import ToolClient
from tests.sidecar import Sidecar

from .two_sidecars import Pair, short_folder, start

STORES = ("sqlite", "postgresql")


def new_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, *, window_s: float = 3600.0
) -> Place:
    """An empty one, of the fixture's parameter."""
    if request.param == "sqlite":
        return FilePlace(tmp_path_factory.mktemp("journal") / "journal.db")
    server = request.getfixturevalue("postgres_server")
    return DatabasePlace(Database(server.new_database()), window_s=window_s)


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return new_place(request, tmp_path_factory)


@pytest.fixture(params=STORES, scope="module")
def module_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return new_place(request, tmp_path_factory)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> DatabasePlace:
    server = request.getfixturevalue("postgres_server")
    return DatabasePlace(Database(server.new_database()), window_s=3600.0)


@pytest.fixture(scope="module")
def places(postgres_server: PostgresServer) -> Iterator[tuple[Path, str]]:
    with short_folder() as folder:
        yield folder, postgres_server.new_database()


@pytest.fixture(scope="module")
def two(places: tuple[Path, str]) -> Iterator[tuple[Sidecar, Sidecar]]:
    folder, url = places
    with contextlib.ExitStack() as stack:
        yield start(stack, folder / "a", folder / "e", url), start(stack, folder / "b", folder / "e", url)


@pytest.fixture
async def pair(places: tuple[Path, str], two: tuple[Sidecar, Sidecar]) -> AsyncIterator[Pair]:
    async with two[0].channel() as one, two[1].channel() as other:
        yield Pair(two, (ToolClient(two[0], one), ToolClient(two[1], other)), places[0] / "e", places[1])
