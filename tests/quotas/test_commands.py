"""What an operator sees of quotas at the command line, and what metrics count."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.cli.command import fumehood
from tests.quotas.support import bank, client_of, code_of
from tests.sidecar import Sidecar

QUOTAS = """
[[policy.quota]]
name = "spend"
tools = ["pay"]
sum = "/amount"
max = 100.5
window = "1d"
per = ["session"]

[[policy.quota]]
name = "at-once"
tools = ["hold"]
in_flight = 2

[[policy.quota]]
name = "looks"
side_effects = ["none"]
calls = 50
window = "1h"
per = ["tool"]
"""


def run(sidecar: Sidecar, *arguments: str) -> Any:
    config = str(sidecar.folder / "fumehood.toml")
    if arguments[1] == "test":
        arguments += ("--address", sidecar.target)
    return fumehood(*arguments, "--config", config)


async def test_commands_show_what_counts_a_call_and_what_is_used_and_left() -> None:
    with bank() as teller, teller.sidecar(QUOTAS) as sidecar:
        fresh = await asyncio.to_thread(run, sidecar, "policy", "quotas", "--json")
        assert {each["quota"]: (each["keys"], each["more"]) for each in fresh.json["quotas"]} == dict.fromkeys(
            ("spend", "at-once", "looks"), ([], 0)
        )
        async with client_of(sidecar) as client:
            for session, amount in (("a", "99.9"), ("b", "7"), ("c", "100.5")):
                assert await code_of(client, teller.pay(amount, session)) == ""
            assert await code_of(client, teller.pay("1", "a")) == "spend"
            holding = [asyncio.create_task(code_of(client, teller.hold("go"))) for _ in range(3)]
            done, _ = await asyncio.wait(holding, return_when=asyncio.FIRST_COMPLETED)
            assert [each.result() for each in done] == ["at-once"]
            said = await asyncio.to_thread(run, sidecar, "policy", "quotas", "--json", "--top", "2")
            text = await asyncio.to_thread(run, sidecar, "policy", "quotas")
            teller.let_go("go")
            await asyncio.gather(*holding)
        spend, at_once, looks = said.json["quotas"]
        assert [(each["key"]["session"], each["used"], each["left"]) for each in spend["keys"]] == [
            ("c", "100.5", "0"),
            ("a", "99.9", "0.6"),
        ]
        assert (spend["more"], spend["limit"], spend["window_s"]) == (1, "100.5", 86_400)
        assert all(each["free_at"] for each in spend["keys"])
        assert at_once["keys"] == [{"key": {}, "used": "2", "left": "0", "free_at": None}]
        assert looks["keys"] == []
        assert "100.5 in all in 86,400 s" in text.stdout
        for arguments, quotas in (
            ('{"folder": "/", "amount": 0.10}', [("spend", "0.1", "")]),
            ('{"folder": "/", "amount": -1}', [("spend", None, "it is negative")]),
        ):
            tested = await asyncio.to_thread(run, sidecar, "policy", "test", "pay", arguments, "--json")
            found = [(each["quota"], each["takes"], each["problem"]) for each in tested.json["quotas"]]
            assert found == quotas
        words = await asyncio.to_thread(run, sidecar, "policy", "test", "look", "{}")
        assert "quota looks counts it: 50 calls in 3,600 s, takes 1" in words.stdout
