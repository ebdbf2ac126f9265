"""Redaction of a plugin's output: what is replaced, and what is left."""

from __future__ import annotations

import base64
import gc
import json
import sys
from types import FrameType
from urllib.parse import quote

import pytest
from fumehood_server.secrets import Redactor
from fumehood_server.secrets.redactor import MAX_VALUES
from fumehood_server.token_bucket import TokenBucket
from fumehood_server.workers.output.log_rate import LogRate
from fumehood_server.workers.output.logs import LogSink
from fumehood_server.workers.output.stderr import StderrLines
from fumehood_server.workers.wire.messages import MAX_LINE_BYTES
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.promise("S811")

UNLIMITED = LogRate(limit_bytes=1 << 60, clock=lambda: 0.0, on_over=lambda _: None)
VALUES = st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=40).filter(
    # A value that is part of its own mask would be found there.
    lambda value: value not in "[secret KEY]"
)


def knowing(*values: bytes) -> Redactor:
    redactor = Redactor()
    for value in values:
        redactor.learn("KEY", value)
    return redactor


@given(VALUES, st.text(max_size=20), st.text(max_size=20))
def test_a_value_in_any_usual_form_is_taken_out(value: str, before: str, after: str) -> None:
    redactor = knowing(value.encode())
    forms = [value, json.dumps(value)[1:-1], quote(value, safe=""), repr(value)[1:-1], value.encode().hex()]
    for form in forms:
        assert form not in redactor.text(f"{before}{form}{after}").replace("[secret KEY]", "")
    assert value.encode() not in redactor.data(before.encode("utf-8", "replace") + value.encode())


VALUE = """p&ss<w>o'rd"+/é=`~%!"""
WRITTEN = {
    "Go's encoding/json": r"""p\u0026ss\u003cw\u003eo'rd\"+/é=`~%!""",
    "System.Text.Json": r"""p\u0026ss\u003Cw\u003Eo\u0027rd\u0022\u002B/\u00E9=\u0060~%!""",
    "PHP's json_encode": r"""p&ss<w>o'rd\"+\/\u00e9=`~%!""",
    "PHP's json_encode with JSON_HEX flags": r"""p\u0026ss\u003Cw\u003Eo\u0027rd\u0022+\/\u00e9=`~%!""",
    "encodeURIComponent": "p%26ss%3Cw%3Eo'rd%22%2B%2F%C3%A9%3D%60~%25!",
    "encodeURI": "p&ss%3Cw%3Eo'rd%22+/%C3%A9=%60~%25!",
    "curl and others, in lower case": "p%26ss%3cw%3eo%27rd%22%2b%2f%c3%a9%3d%60~%25%21",
    "Java's URLEncoder": "p%26ss%3Cw%3Eo%27rd%22%2B%2F%C3%A9%3D%60%7E%25%21",
    "upper-case hexadecimal": VALUE.encode().hex().upper(),
    "Python's html.escape": "p&amp;ss&lt;w&gt;o&#x27;rd&quot;+/é=`~%!",
    "Go's html/template": "p&amp;ss&lt;w&gt;o&#39;rd&#34;&#43;/é=`~%!",
    "Jinja": "p&amp;ss&lt;w&gt;o&#39;rd&#34;+/é=`~%!",
    "PHP's htmlspecialchars": "p&amp;ss&lt;w&gt;o&#039;rd&quot;+/é=`~%!",
    "XML": "p&amp;ss&lt;w&gt;o&apos;rd&quot;+/&#233;=`~%!",
    "Handlebars": "p&amp;ss&lt;w&gt;o&#x27;rd&quot;+/é&#x3D;&#x60;~%!",
    "numbered references": "".join(each if each.isalnum() else f"&#{ord(each)};" for each in VALUE),
}


def test_a_value_is_taken_out_however_other_languages_write_it() -> None:
    redactor = knowing(VALUE.encode())
    left = {name: redactor.text(f"<{form}>") for name, form in WRITTEN.items()}
    assert {name: text for name, text in left.items() if text != "<[secret KEY]>"} == {}
    assert redactor.data(f"<{WRITTEN['XML']}>".encode()) == b"<[secret KEY]>"


def test_many_secrets_cost_no_more_passes_over_a_text_than_one() -> None:
    many, one = Redactor(), knowing(b"value number 000007 of many")
    for number in range(64):
        many.learn(f"KEY_{number}", b"value number %06d of many" % number)
    text = "value number " * 20_000 + "value number 000007 of many"
    calls = 0

    def profile(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    def counted(redactor: Redactor) -> int:
        nonlocal calls
        calls = 0
        gc.disable()  # whose callbacks, such as hypothesis's, are calls too
        sys.setprofile(profile)
        try:
            shown = redactor.text(text)
        finally:
            sys.setprofile(None)
            gc.enable()
        assert shown.startswith("value number ")
        assert "000007" not in shown
        return calls

    assert counted(many) == counted(one)


def test_a_secret_that_is_no_text_is_taken_out_of_what_is_none() -> None:
    redactor = knowing(b"\xff\xfe not UTF-8 \xfd")
    assert redactor.data(b"<\xff\xfe not UTF-8 \xfd>") == b"<[secret KEY]>"
    assert redactor.text("a name \udcff of a file") == "a name \udcff of a file"


@given(st.binary(min_size=12, max_size=40), st.binary(max_size=9))
def test_base64_is_taken_out_wherever_the_value_begins_in_it(value: bytes, before: bytes) -> None:
    encoded = base64.b64encode(before + value).decode()
    shown = knowing(value).text(encoded)
    assert "[secret KEY]" in shown
    # What is left holds fewer than two of the value's bytes at each end.
    assert len(shown.replace("[secret KEY]", "")) * 3 // 4 <= len(before) + 5


@given(st.text(max_size=200))
def test_words_without_the_value_stay_as_they_are(text: str) -> None:
    redactor = knowing(b"\x00a value that no such text holds\x00")
    assert redactor.text(text) == text


def test_a_key_of_several_lines_is_taken_out_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----"
    redactor = knowing(key.encode())
    for line in key.splitlines():
        assert redactor.text(f"> {line} <") == "> [secret KEY] <"
    assert redactor.text(key) == "[secret KEY]"


def test_values_that_a_secret_had_before_are_still_taken_out() -> None:
    redactor = knowing(*(b"value number %03d" % number for number in range(MAX_VALUES)))
    assert redactor.text("value number 000, value number 003") == "[secret KEY], [secret KEY]"


def test_nothing_is_looked_for_before_a_secret_was_handed_out() -> None:
    redactor = Redactor()
    assert not redactor.active
    assert redactor.text("password") == "password"


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("start", [0, MAX_LINE_BYTES - 20, MAX_LINE_BYTES - 5, MAX_LINE_BYTES - 1])
def test_a_value_is_taken_out_of_stderr_however_it_is_cut_and_where_the_line_is(size: int, start: int) -> None:
    log = LogSink().of("p")
    log.redactor.learn("KEY", b"s3cr3t-value")
    stderr = StderrLines(log, "w", TokenBucket(burst=1000, per_second=0.0, clock=lambda: 0.0), UNLIMITED)
    stream = b"x" * start + b"s3cr3t-value and more words\nnext\n"
    for at in range(0, len(stream), size):
        stderr.take_lines(stream[at : at + size], 0, size)
    stderr.close()
    first, second = (line.message for line in log.last(10))
    assert not any(part in first for part in ("s3cr3t-value", "s3c", "value"))
    assert second == "next"
    if start == 0:
        assert first == "[secret KEY] and more words"


def test_fields_that_are_no_json_without_the_value_are_left_out() -> None:
    log = LogSink().of("p")
    log.redactor.learn("KEY", b'": {"inner')
    log.write("log", "info", "a line", fields_json='{"outer": {"inner": 1}}')
    log.write("log", "info", "a line", fields_json='{"other": {"inner": 1}}')
    assert [line.fields_json for line in log.last(2)] == ["", ""]
    log.write("log", "info", "a line", fields_json='{"a": 1}')
    assert log.last(1)[0].fields_json == '{"a": 1}'


LONG_LINES = [
    ("Authorization: Bearer {}; ", 200),
    ("x" * (MAX_LINE_BYTES + 40) + "{}", 1),
    ("{}" * 300, 1),
]


@pytest.mark.parametrize(("words", "times"), LONG_LINES, ids=["shrinks", "ends with it", "all of it"])
@pytest.mark.parametrize("source", ["log", "stderr"])
def test_a_long_line_shows_no_part_of_a_value_however_much_it_shrinks(source: str, words: str, times: int) -> None:
    value = "sk-" + "".join(map(str, range(36)))
    log = LogSink().of("p")
    log.redactor.learn("KEY", value.encode())
    for beyond in range(0, len(value), 7):
        line = "-" * beyond + words.format(*[value] * 300) * times
        if source == "log":
            log.write("log", "info", line)
        else:
            stderr = StderrLines(log, "w", TokenBucket(burst=1000, per_second=0.0, clock=lambda: 0.0), UNLIMITED)
            stderr.take_lines(line.encode() + b"\n", 0, len(line))
        shown = log.last(1)[0].message
        assert value[:4] not in shown
        assert len(shown) > 1000


def test_a_line_that_is_short_without_its_values_is_shown_whole() -> None:
    value = "s3cr3t-value" * 10
    log = LogSink().of("p")
    log.redactor.learn("KEY", value.encode())
    line = value * (MAX_LINE_BYTES // len(value) + 1) + " end"
    log.write("log", "info", line)
    stderr = StderrLines(log, "w", TokenBucket(burst=1000, per_second=0.0, clock=lambda: 0.0), UNLIMITED)
    stderr.take_lines(line.encode() + b"\n", 0, len(line))
    for shown in log.last(2):
        assert shown.message == line.replace(value, "[secret KEY]")
