"""Redaction of long text, of large frames and of long secrets: in short steps, in order, in bounded memory."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from types import FrameType

import orjson
import pytest
from fumehood.v1 import plugin_pb2
from fumehood_server.secrets import Redactor
from fumehood_server.secrets.forms import MAX_FORM_BYTES, forms_of
from fumehood_server.secrets.search import BEGINNING_BYTES, SEARCHED_BYTES, STEP_MATCHES
from fumehood_server.workers.output.scrubbing import scrub_frame
from fumehood_server.workers.wire.messages import MAX_UPDATE_DATA_BYTES
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.promise("S811")

MASK = "[secret KEY]"
KEY = "-----BEGIN KEY-----\n" + "\n".join(f"{each:064x}" for each in range(0, 50 << 200, 1 << 200)) + "\n"


def knowing(value: str) -> Redactor:
    redactor = Redactor()
    redactor.learn("KEY", value.encode())
    return redactor


@given(gaps=st.lists(st.integers(SEARCHED_BYTES - 12, SEARCHED_BYTES + 12), min_size=1, max_size=3), wide=st.booleans())
def test_a_value_is_taken_out_wherever_one_step_ends_and_the_next_begins(*, gaps: list[int], wide: bool) -> None:
    fill = "é" if wide else "x"
    text = "".join(fill * gap + "s3cr3t-value" for gap in gaps) + fill
    assert knowing("s3cr3t-value").text(text) == text.replace("s3cr3t-value", MASK)


def test_every_step_over_a_long_text_is_short_whatever_it_holds() -> None:
    redactor = knowing("abcdefgh")
    text = "abcdefgh" * 100_000
    count = sum(1 for _ in redactor.text_in_steps(text))
    assert count >= 100_000 // STEP_MATCHES
    assert redactor.text_in_thread(text) == redactor.text(text) == MASK * 100_000
    clean = "y" * len(text)
    assert redactor.text(clean) is clean


def test_all_of_a_long_secret_is_taken_out_in_every_form() -> None:
    redactor = knowing(KEY)
    assert len(KEY) > 4 * BEGINNING_BYTES
    texts = [KEY, KEY + KEY, f"{KEY}x", json.dumps(KEY), json.dumps(json.dumps({"key": KEY})), KEY.encode().hex()]
    left = [redactor.text(each).replace(MASK, "") for each in texts]
    assert left == ["", "", "x", '""', r'"{\"key\": \"\"}"', ""]


def test_what_is_only_a_part_of_a_long_secret_is_taken_out_as_far_as_it_goes() -> None:
    value = 'a"\\é&' * 200
    redactor = knowing(value)
    for size in range(BEGINNING_BYTES, 700, 7):
        part = value[:size]
        text = json.dumps({"cut": part, "next": "é"}, ensure_ascii=size % 2 == 0)
        shown = redactor.text(text)
        read = json.loads(shown)
        assert read["next"] == "é"
        assert read["cut"].startswith(MASK)
        assert len(read["cut"]) < len(MASK) + 3


def test_a_text_that_has_less_of_a_long_secret_stays_as_it_is() -> None:
    text = f"{KEY[:19]} and not the rest"
    assert knowing(KEY.replace("-----BEGIN KEY-----\n", "-----BEGIN KEY----- ")).text(text) == text


def test_the_largest_secrets_take_bounded_memory() -> None:
    value = ('"\\&é' * 20_000)[:52_000].encode()
    forms = forms_of(value)
    assert sum(map(len, forms)) < 2 * MAX_FORM_BYTES
    redactor = Redactor()
    redactor.learn("KEY", value)
    assert redactor.longest_bytes <= BEGINNING_BYTES
    assert redactor.data(b"<" + value + b">") == f"<{MASK}>".encode()
    nested = json.dumps(json.dumps(value.decode()))
    assert "é&" not in redactor.text(nested)


async def test_a_secret_is_learnt_beside_the_loop_and_before_it_is_handed_out() -> None:
    redactor = Redactor()
    called: set[str] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code.co_qualname)

    sys.setprofile(profile)  # of this thread, the loop's
    try:
        await redactor.learn_beside("KEY", KEY.encode())
    finally:
        sys.setprofile(None)
    assert "forms_of" not in called
    assert "FormSearch.__init__" not in called
    assert redactor.active
    assert redactor.text(KEY) == MASK
    await asyncio.gather(*(redactor.learn_beside(f"KEY_{each}", b"value number %03d" % each) for each in range(20)))
    assert redactor.text("value number 000 value number 019") == "[secret KEY_0] [secret KEY_19]"


@pytest.mark.parametrize("earlier", ["", "an earlier value"], ids=["first value", "changed value"])
async def test_a_secret_that_is_being_learnt_is_handed_to_nobody_before_it_is_known(earlier: str) -> None:
    redactor = knowing(earlier) if earlier else Redactor()
    begun, go_on = threading.Event(), threading.Event()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_qualname == "FormSearch.__init__":
            begun.set()
            go_on.wait(60)

    async def ask() -> str:
        await redactor.learn_beside("KEY", KEY.encode())
        return redactor.text(KEY)  # as of a plugin that has it now

    threading.setprofile(profile)  # of threads that begin from now on
    try:
        first = asyncio.create_task(ask())
        while not begun.is_set():  # noqa: ASYNC110 - a thread's
            await asyncio.sleep(0.001)
        second = asyncio.create_task(ask())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not second.done()
    finally:
        threading.setprofile(None)  # type: ignore[arg-type] # as it takes
        go_on.set()
    assert await asyncio.gather(first, second) == [MASK, MASK]


def scrubbed(data_json: str, redactor: Redactor) -> tuple[str, int]:
    """What is left of an update's data, and how often it was parsed."""
    frame = plugin_pb2.PluginFrame()
    frame.update.data_json = data_json
    parsed = 0

    def profile(_: FrameType, event: str, function: object) -> None:
        nonlocal parsed
        parsed += event == "c_call" and function is orjson.loads

    sys.setprofile(profile)
    try:
        for _ in scrub_frame(frame, redactor):
            pass
    finally:
        sys.setprofile(None)
    return frame.update.data_json, parsed


def test_data_of_an_update_is_parsed_only_where_a_secret_was_taken_out_and_never_where_it_is_too_long() -> None:
    redactor = knowing("s3cr3t-value")
    assert scrubbed('["s3cr3t-value"]', redactor) == (f'["{MASK}"]', 1)
    assert scrubbed('["another"]', redactor) == ('["another"]', 0)
    assert scrubbed("no JSON", redactor) == ("no JSON", 0)
    long = json.dumps(["s3cr3t-value"] * MAX_UPDATE_DATA_BYTES)
    assert scrubbed(long, redactor) == ("", 0)
