"""Journals in each of the databases that hold one."""

from __future__ import annotations

import pytest
from fumehood_server.config.database import Database
from fumehood_server.journal.place import DatabasePlace, FilePlace, Place

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
