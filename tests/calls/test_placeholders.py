"""The text that stands for a secret is found in arguments however they escape it."""

from __future__ import annotations

import json

import pytest
from fumehood_server.calls.placeholders import placeholder_in

NAMES = ("KEY", "OTHER_KEY")


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(each):04X}" for each in text)


@pytest.mark.parametrize("filling", [0, 65_530, 300_000])
async def test_a_placeholder_is_found_wherever_it_is_and_however_it_is_written(filling: int) -> None:
    fill = "é[s\\\\" * (filling // 5)
    found = {
        written: await placeholder_in(f'{{"a": "{fill}{written}"}}', NAMES)
        for written in (
            "[secret KEY]",
            escaped("[secret KEY]"),
            f"[{escaped('secret')} K\\u0045Y]",
            "\\\\[secret KEY]",
            f"\\\\{escaped('[')}secret KEY]",
        )
    }
    assert {written: name for written, name in found.items() if name != "[secret KEY]"} == {}
    assert await placeholder_in(f'"{fill}{escaped("[secret OTHER_KEY]")}"', NAMES) == "[secret OTHER_KEY]"


async def test_what_only_looks_like_one_is_left() -> None:
    for text in ("[secret NONE]", "[secret KEY", "\\u005bsecret KEY]", "[secret \\u004bEY]"):
        document = json.dumps({"a": text})
        assert "[secret KEY]" not in json.loads(document)["a"]
        assert await placeholder_in(document, NAMES) == ""
    assert await placeholder_in(json.dumps({"a": "[secret KEY]"}), ()) == ""
