"""The count of a frame's fields, held against protobuf's own parser."""

from __future__ import annotations

from typing import Any

import pytest
from fumehood.v1 import plugin_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood_server.field_count import FieldCounter, MalformedMessageError, nested_tags
from fumehood_server.workers.process.frame_dispatch import MAX_FIELDS, MAX_READY_FIELDS
from fumehood_server.workers.wire.frame_reader import has_more_fields
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.promise("S905")

_texts = st.text(max_size=5)


def _result(blocks: list[str], details: str) -> plugin_pb2.PluginFrame:
    frame = plugin_pb2.PluginFrame()
    frame.result.invocation_id = 300
    frame.result.details_json = details
    for text in blocks:
        frame.result.content.add(text=text)
    return frame


@given(st.lists(_texts, max_size=20), _texts)
def test_each_field_on_each_level_counts_once(blocks: list[str], details: str) -> None:
    data = _result(blocks, details).SerializeToString()
    # The result, its number, its details unless they are empty, and each block with its text.
    count = 2 + bool(details) + 2 * len(blocks)
    assert not has_more_fields(data, count)
    assert has_more_fields(data, count - 1)


@given(st.lists(_texts, max_size=20), st.integers(1, 9))
def test_a_count_by_portions_comes_to_the_same(blocks: list[str], portion: int) -> None:
    data = _result(blocks, "{}").SerializeToString()
    counter, portions = FieldCounter(data, nested_tags(plugin_pb2.PluginFrame.DESCRIPTOR)), 1
    while counter.has_more(portion):
        portions += 1
    assert portions == -(-(3 + 2 * len(blocks)) // portion)


def test_messages_that_contain_themselves_are_counted_on_every_level() -> None:
    request = pb.SessionRequest()
    inner = request
    for _ in range(20):
        inner = inner.combined.requests.add()
    inner.call.tool = "echo"
    nested = nested_tags(pb.SessionRequest.DESCRIPTOR)
    assert not FieldCounter(request.SerializeToString(), nested).has_more(2 * 20 + 2)
    assert FieldCounter(request.SerializeToString(), nested).has_more(2 * 20 + 1)


@given(st.binary(max_size=60))
def test_what_the_parser_refuses_is_refused_or_within_the_count(data: bytes) -> None:
    try:
        more = has_more_fields(data, len(data))
    except MalformedMessageError:
        return
    assert not more, "no field takes less than a byte"
    frame = plugin_pb2.PluginFrame()
    try:
        frame.ParseFromString(data)
    except DecodeError:
        return  # text that is not UTF-8, a group that has no end
    assert frame.ByteSize() <= 2 * len(data)


@given(st.lists(_texts, max_size=5), st.data())
def test_a_message_that_is_cut_short_is_malformed_for_both(blocks: list[str], data: st.DataObject) -> None:
    whole = _result(blocks, "{}").SerializeToString()
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    with pytest.raises(MalformedMessageError):
        has_more_fields(cut, len(whole))
    with pytest.raises(DecodeError):
        plugin_pb2.PluginFrame.FromString(cut)


def test_the_largest_result_and_the_largest_ready_are_within_their_bounds() -> None:
    frame = plugin_pb2.PluginFrame()
    frame.result.details_json = "{}"
    for _ in range(1024):
        content = frame.result.content.add(resource_uri="file:///a")
        content.blob.data, content.blob.media_type = b"x" * 1000, "image/png"
        said = content.annotations
        said.audience.extend(["user", "assistant"])
        said.priority, said.last_modified = 1, "2026-01-01"
    assert not has_more_fields(frame.SerializeToString(), MAX_FIELDS)

    frame = plugin_pb2.PluginFrame()
    frame.ready.protocol_version = 1
    for number in range(1024):
        tool = frame.ready.tools.add(
            name=f"t{number}",
            title="T",
            description="does it",
            input_schema_json="{}",
            output_schema_json="{}",
            side_effects=1,
            idempotent=True,
            requires=["read", "write", "binary:rg", "host:a.example:443"],
            isolation=2,
            execution_mode=2,
        )
        tool.timeout.seconds = 30
        tool.limits.memory_bytes = 1 << 30
        tool.limits.processes = 5
    assert not has_more_fields(frame.SerializeToString(), MAX_READY_FIELDS)


def test_the_count_stops_at_its_bound_however_long_the_frame_is() -> None:
    empty_headers = b"\x2a\x80\x80\x80\x02" + b"\x2a\x00" * (1 << 21)
    looked_at = 0

    class Watched(bytes):
        def __getitem__(self, at: Any) -> Any:
            nonlocal looked_at
            looked_at += 1
            return super().__getitem__(at)

    assert has_more_fields(Watched(empty_headers), MAX_FIELDS)
    assert looked_at < 4 * MAX_FIELDS
