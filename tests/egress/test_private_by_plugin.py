"""A private address is reached by the plugin and the name that it was allowed for, and by no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from fumehood_server.egress import Reason
from fumehood_server.plugin_requests import PluginRequests
from fumehood_server.plugins.catalog import Catalog
from fumehood_server.secrets import SecretStore
from fumehood_server.workers import LogSink

from tests.plugins.support import catalog_of, executable, tool_toml

from .support import Got, Net, answering, fetch, names, net, reply

pytestmark = pytest.mark.promise("S812")


async def test_two_plugins_reach_the_loopback_servers_that_each_was_given_and_not_the_others(tmp_path: Path) -> None:
    executable(tmp_path / "one", tool_toml("of_one", side_effects="read"))
    executable(tmp_path / "two", tool_toml("of_two", side_effects="read"))
    resolver = names(db_test="127.0.0.1", other_test="127.0.0.1", two_test="127.0.0.1")
    network = net(resolver=resolver, real=True)
    async with answering(reply(b"first")) as first, answering(reply(b"second")) as second:
        hosts = [f"{name}:{first.port}" for name in ("db.test", "other.test", "127.0.0.1")]
        catalog = await catalog_of(
            tmp_path,
            f"""
            [[plugin]]
            path = "one"
            hosts = {hosts}
            allow_private = ["DB.test=127.0.0.1"]
            [[plugin]]
            path = "two"
            hosts = {[*hosts, f"two.test:{second.port}", f"127.0.0.1:{second.port}"]}
            allow_private = ["two.test=127.0.0.1", "127.0.0.1"]
            """,
        )
        one, two = Caller(catalog, network, "of_one"), Caller(catalog, network, "of_two")
        assert (await one.get(f"http://db.test:{first.port}/")).body == b"first"
        assert (await two.get(f"http://two.test:{second.port}/")).body == b"second"
        assert (await two.get(f"http://127.0.0.1:{first.port}/")).body == b"first"
        refused = await two.get(f"http://db.test:{first.port}/")
        assert refused.reason is Reason.ADDRESS_NOT_PUBLIC
        assert '"db.test=127.0.0.1" to the plugin\'s allow_private' in refused.message
        for url in (f"http://other.test:{first.port}/", f"http://127.0.0.1:{first.port}/"):
            assert (await one.get(url)).reason is Reason.ADDRESS_NOT_PUBLIC, url
        assert (await one.get(f"http://two.test:{second.port}/")).reason is Reason.HOST_NOT_GRANTED
        assert (len(first.requests), len(second.requests)) == (2, 1)


@pytest.mark.parametrize("own", ["", 'allow_private = ["db.test=127.0.0.1"]'])
async def test_what_is_allowed_for_all_plugins_holds_for_the_address_and_for_no_name(tmp_path: Path, own: str) -> None:
    executable(tmp_path / "one", tool_toml("of_one", side_effects="read"))
    network = net(resolver=names(db_test="127.0.0.1"), real=True)
    async with answering(reply()) as server:
        hosts = [f"127.0.0.1:{server.port}", f"db.test:{server.port}"]
        text = f'[egress]\nallow_private = ["127.0.0.1"]\n[[plugin]]\npath = "one"\nhosts = {hosts}\n{own}\n'
        one = Caller(await catalog_of(tmp_path, text), network, "of_one")
        assert (await one.get(f"http://127.0.0.1:{server.port}/")).status == 200
        by_name = await one.get(f"http://db.test:{server.port}/")
        assert (by_name.status, by_name.reason) == ((200, None) if own else (0, Reason.ADDRESS_NOT_PUBLIC))


class Caller:
    """Asks as one tool of a catalog may."""

    def __init__(self, catalog: Catalog, network: Net, tool: str) -> None:
        found = catalog.find(tool)
        assert found is not None
        assert found.spec is not None
        self._network = network
        self._access = PluginRequests(SecretStore({}), LogSink()).access_of(found.spec)

    async def get(self, url: str) -> Got:
        return await fetch(self._network, url, self._access)
