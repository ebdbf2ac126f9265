"""A plugin's word on its blocks: what is within the bounds of content.proto stays, and the rest is left out."""

from __future__ import annotations

import math

import pytest
from fumehood.v1 import content_pb2 as pb
from fumehood_server.model.call import Annotations, Block
from fumehood_server.model.content_messages import fill_block, read_block


def again(block: Block) -> Block | None:
    message = pb.Content()
    fill_block(message, block)
    return read_block(pb.Content.FromString(message.SerializeToString()))


def test_a_block_reads_as_it_was_written() -> None:
    said = Annotations(("user", "assistant"), 0.0, "2026-01-01T00:00:00Z")
    for block in (
        Block(text="a"),
        Block(text="", annotations=Annotations(priority=1.0)),
        Block(text="a", media_type="text/markdown", resource_uri="file:///a", annotations=said),
        Block(data=b"", media_type="image/png", resource_uri="x" * 8192, annotations=said),
    ):
        assert again(block) == block
    assert read_block(pb.Content(resource_uri="file:///a")) is None, "nothing is in it"


@pytest.mark.parametrize("uri", ["x" * 8193, "file:///\x1b[2J", "file:///\u202e", "a\nb"])
def test_a_uri_out_of_bounds_is_left_out(uri: str) -> None:
    assert read_block(pb.Content(text="a", resource_uri=uri)) == Block(text="a")


@pytest.mark.parametrize("priority", [math.nan, math.inf, -0.1, 1.1])
def test_annotations_that_are_none_are_left_out(priority: float) -> None:
    said = pb.ContentAnnotations(audience=["machine"] * 100, priority=priority, last_modified="x" * 65)
    assert read_block(pb.Content(text="a", annotations=said)) == Block(text="a")
    said.audience.extend(["assistant", "user", "user"])
    kept = Annotations(audience=("user", "assistant"))
    assert read_block(pb.Content(text="a", annotations=said)) == Block(text="a", annotations=kept)


def test_media_types_are_cut() -> None:
    long = "x" * 300
    assert read_block(pb.Content(text="a", text_media_type=long)) == Block(text="a", media_type="x" * 255)
    assert read_block(pb.Content(blob=pb.Blob(media_type=long))) == Block(data=b"", media_type="x" * 255)
