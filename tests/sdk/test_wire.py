"""Our own coding of the wire against the generated code, and against bytes that nobody meant."""

from __future__ import annotations

import contextlib
import math

from fumehood.v1 import plugin_pb2 as pb
from fumehood.v1.tool_pb2 import CallContext, ToolDefinition
from fumehood_sdk.errors import WireError
from fumehood_sdk.tools.declaration import LEVELS, LIMITS, Declaration
from fumehood_sdk.wire import (
    plugin_frames,
    plugin_requests,
    recorded_values,
    sidecar_answers,
    sidecar_frames,
    varint,
)
from fumehood_sdk.wire.fields import bytes_field
from fumehood_sdk.wire.recorded_values import RecordedValue
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


RECORDED = st.builds(pb.RecordedValue, kind=TEXT, name=TEXT, number=U32, value_json=TEXT, error_json=TEXT)


def told(value: pb.RecordedValue) -> RecordedValue:
    return RecordedValue(value.kind, value.name, value.number, value.value_json, value.error_json)


@given(U64, st.lists(RECORDED), U32)
def test_recorded_values_are_written_field_by_field(call: int, values: list[pb.RecordedValue], left_out: int) -> None:
    encoded = [recorded_values.encode_value(told(each)) for each in values]
    data = recorded_values.encode_frame(call, encoded, left_out)
    length, start = varint.decode(data, 0, len(data))
    assert length == len(data) - start
    frame = pb.PluginFrame.FromString(data[start:])
    assert frame.recorded_values == pb.RecordedValues(invocation_id=call, values=values, left_out=left_out)


@st.composite
def host_frames(draw: st.DrawFn) -> pb.HostFrame:
    kind = draw(st.sampled_from(["hello", "invoke", "cancel", "shutdown"]))
    frame = pb.HostFrame()
    if kind == "hello":
        frame.hello.CopyFrom(
            pb.Hello(
                protocol_versions=draw(st.lists(U32)),
                sidecar_version=draw(TEXT),
                plugin=draw(TEXT),
                side_effects=draw(st.integers(0, 4)),  # type: ignore[arg-type]  # an enum's number
                max_frame_bytes=draw(U32),
                max_concurrent_calls=draw(U32),
                readable_paths=draw(st.lists(TEXT)),
                writable_paths=draw(st.lists(TEXT)),
            )
        )
    elif kind == "invoke":
        frame.invoke.CopyFrom(
            pb.Invoke(
                invocation_id=draw(U64),
                tool=draw(TEXT),
                arguments_json=draw(TEXT),
                call_id=draw(TEXT),
                attempt=draw(U32),
                context=CallContext(request_id=draw(TEXT), turn_id=draw(TEXT), caused_by=draw(TEXT)),
                max_recorded_bytes=draw(U32),
                replay=draw(st.none() | st.builds(pb.Replay, values=st.lists(RECORDED))),
                traceparent=draw(TEXT),
                tracestate=draw(TEXT),
            )
        )
        frame.invoke.timeout.FromMilliseconds(draw(st.integers(-(10**9), 10**9)))
    elif kind == "cancel":
        frame.cancel.CopyFrom(pb.Cancel(invocation_id=draw(U64), reason=draw(st.integers(0, 4))))  # type: ignore[arg-type]
        frame.cancel.grace.FromMilliseconds(draw(st.integers(0, 10**9)))
    else:
        frame.shutdown.grace.FromMilliseconds(draw(st.integers(0, 10**9)))
    return frame


@given(host_frames())
def test_what_the_sidecar_sends_is_read_field_by_field(frame: pb.HostFrame) -> None:
    read = sidecar_frames.decode_frame(frame.SerializeToString())
    sent = getattr(frame, frame.WhichOneof("frame") or "")
    assert type(read).__name__.lower() == frame.WhichOneof("frame")
    for name in type(read).__slots__:
        value = getattr(read, name)
        if name in ("timeout_s", "grace_s"):
            assert math.isclose(value, getattr(sent, name[:-2]).ToTimedelta().total_seconds(), abs_tol=1e-9)
        elif name in ("arguments_json", "traceparent", "tracestate"):
            assert value.decode() == getattr(sent, name)
        elif name == "prepares":
            assert not value
        elif name == "replay":
            assert (value is not None) == sent.HasField("replay")
            values = recorded_values.decode_replay(value or b"")
            assert values == [told(each) for each in sent.replay.values]
        elif name == "context":
            fields = sidecar_frames.decode_call_context(value)
            assert fields == {field: getattr(sent.context, field) for field in fields}
            assert list(fields) == [field.name for field in CallContext.DESCRIPTOR.fields]
        else:
            assert value == (list(getattr(sent, name)) if isinstance(value, list) else getattr(sent, name))


@given(U64, TEXT, TEXT, TEXT, st.integers(0, 10_000))
def test_a_frame_to_prepare_arguments_is_read_as_one(
    number: int, tool: str, arguments: str, call_id: str, timeout_ms: int
) -> None:
    message = pb.PrepareArguments(invocation_id=number, tool=tool, arguments_json=arguments, call_id=call_id)
    message.timeout.FromMilliseconds(timeout_ms)
    read = sidecar_frames.decode_frame(pb.HostFrame(prepare_arguments=message).SerializeToString())
    assert isinstance(read, sidecar_frames.Invoke)
    assert (read.prepares, read.invocation_id, read.tool) == (True, number, tool)
    assert (read.arguments_json.decode(), read.call_id) == (arguments, call_id)
    assert math.isclose(read.timeout_s, timeout_ms / 1000, abs_tol=1e-9)


HEADERS = st.lists(st.builds(pb.HttpHeader, name=TEXT, value=TEXT), max_size=3)
PROBLEMS = st.none() | st.builds(pb.HttpFailure, reason=TEXT, message=TEXT, retryable=st.booleans())
ANSWERS = st.one_of(
    st.builds(
        pb.HttpResponse,
        invocation_id=U64,
        request_id=U32,
        status=U32,
        url=TEXT,
        headers=HEADERS,
        redirects=U32,
        failure=PROBLEMS,
    ),
    st.builds(pb.HttpBody, invocation_id=U64, request_id=U32, data=st.binary(), end=st.booleans(), failure=PROBLEMS),
    st.builds(pb.SecretResponse, invocation_id=U64, request_id=U32, value=st.binary(), problem=TEXT),
)
FRAME_OF = {pb.HttpResponse: "http_response", pb.HttpBody: "http_body", pb.SecretResponse: "secret_response"}


@given(ANSWERS)
def test_what_the_sidecar_answers_is_read_field_by_field(
    answer: pb.HttpResponse | pb.HttpBody | pb.SecretResponse,
) -> None:
    frame = pb.HostFrame(**{FRAME_OF[type(answer)]: answer})  # type: ignore[arg-type]  # its type goes with its name
    read = sidecar_frames.decode_frame(frame.SerializeToString())
    assert isinstance(read, sidecar_answers.Answer)
    assert (read.invocation_id, read.request_id) == (answer.invocation_id, answer.request_id)
    if isinstance(read, sidecar_answers.HttpHead):
        assert isinstance(answer, pb.HttpResponse)
        assert (read.status, read.url, read.redirects) == (answer.status, answer.url, answer.redirects)
        assert read.headers == [(each.name, each.value) for each in answer.headers]
    elif isinstance(read, sidecar_answers.HttpPiece):
        assert isinstance(answer, pb.HttpBody)
        assert (read.data, read.end) == (answer.data, answer.end)
    else:
        assert isinstance(read, sidecar_answers.SecretAnswer)
        assert isinstance(answer, pb.SecretResponse)
        assert (read.value, read.problem) == (answer.value, answer.problem)
        return
    assert answer.HasField("failure") == (read.problem is not None)
    if read.problem is not None:
        said = (read.problem.reason, read.problem.message, read.problem.retryable)
        assert said == (answer.failure.reason, answer.failure.message, answer.failure.retryable)


@given(
    U64,
    st.integers(1, 2**32 - 1),
    TEXT,
    st.lists(st.tuples(TEXT, TEXT), max_size=3),
    st.binary(),
    st.none() | st.integers(0, 2**32 - 1),
)
def test_what_a_call_asks_is_what_the_sidecar_reads(  # noqa: PLR0917 - they are drawn, not passed
    call: int, number: int, word: str, headers: list[tuple[str, str]], body: bytes, bound: int | None
) -> None:
    encoded = plugin_requests.encode_http_request(
        call, number, word, word, headers=headers, body=body, timeout_s=bound, max_bytes=bound, max_redirects=bound
    )
    read = pb.HttpRequest.FromString(encoded)
    assert (read.invocation_id, read.request_id, read.method, read.url, read.body) == (call, number, word, word, body)
    assert [(each.name, each.value) for each in read.headers] == headers
    assert read.HasField("timeout") == read.HasField("max_redirects") == (bound is not None)
    if bound is not None:
        assert read.timeout.ToNanoseconds() == max(bound * 10**9, 1)
        assert (read.max_response_bytes, read.max_redirects) == (max(bound, 1), bound)
    secret = pb.SecretRequest.FromString(plugin_requests.encode_secret_request(call, number, word))
    assert (secret.invocation_id, secret.request_id, secret.name) == (call, number, word)


@given(st.sampled_from([0x2A, 0x32, 0x3A]), st.binary(max_size=60))
def test_hostile_answers_are_read_or_refused(tag: int, data: bytes) -> None:
    with contextlib.suppress(WireError):
        assert isinstance(sidecar_frames.decode_frame(bytes_field(tag, data)), sidecar_answers.Answer)


@given(st.binary(max_size=200))
def test_hostile_bytes_are_read_as_the_generated_code_reads_them_or_refused(data: bytes) -> None:
    try:
        read = sidecar_frames.decode_frame(data)
    except WireError:
        return
    try:
        expected = pb.HostFrame.FromString(data)
    except DecodeError:
        # The generated code looks into fields that are not known to us, and into a context that we read on demand.
        return
    if read is None:
        assert expected.WhichOneof("frame") is None
    else:
        assert type(read).__name__.lower() == expected.WhichOneof("frame")


@given(U64, TEXT, st.none() | st.floats(), st.none() | st.floats(), TEXT)
def test_updates_are_what_the_generated_code_reads(
    number: int, message: str, progress: float | None, total: float | None, data: str
) -> None:
    sent = plugin_frames.delimited_frame(
        plugin_frames.UPDATE,
        plugin_frames.encode_update(number, message, progress, total, data.encode(), unit=message[:3]),
    )
    update = pb.PluginFrame.FromString(undelimited(sent)).update
    assert (update.invocation_id, update.message, update.data_json) == (number, message, data)
    assert update.unit == message[:3]
    for value, name in ((progress, "progress"), (total, "total")):
        assert update.HasField(name) == (value is not None)
        assert value is None or getattr(update, name) == value or math.isnan(value)


@given(U64, st.lists(TEXT | st.tuples(st.binary(), TEXT)), TEXT, st.booleans())
def test_results_are_what_the_generated_code_reads(
    number: int, content: list[plugin_frames.Block], details: str, terminate: bool
) -> None:
    body = plugin_frames.encode_result(number, content, details.encode(), terminate=terminate)
    sent = plugin_frames.delimited_frame(plugin_frames.RESULT, body)
    assert plugin_frames.frame_size_bytes(body) == len(undelimited(sent))
    result = pb.PluginFrame.FromString(undelimited(sent)).result
    assert (result.invocation_id, result.details_json, result.terminate) == (number, details, terminate)
    assert [
        block.text if block.WhichOneof("block") == "text" else (block.blob.data, block.blob.media_type)
        for block in result.content
    ] == content


ANNOTATIONS = st.builds(
    plugin_frames.Annotations,
    audience=st.lists(TEXT).map(tuple),
    priority=st.none() | st.floats(allow_nan=False),
    last_modified=TEXT,
)
DESCRIBED = st.builds(
    plugin_frames.DescribedBlock,
    block=TEXT | st.tuples(st.binary(), TEXT),
    resource_uri=TEXT,
    text_media_type=TEXT,
    annotations=st.none() | ANNOTATIONS,
)


@given(st.lists(DESCRIBED), st.booleans())
def test_what_is_said_of_blocks_is_what_the_generated_code_reads(
    content: list[plugin_frames.DescribedBlock], failed: bool
) -> None:
    failure = plugin_frames.Failure("m", "r", content=tuple(content))
    body = (
        plugin_frames.encode_failure(1, failure)
        if failed
        else plugin_frames.encode_result(1, content, b"", terminate=False)
    )
    result = pb.PluginFrame.FromString(undelimited(plugin_frames.delimited_frame(plugin_frames.RESULT, body))).result
    assert result.HasField("error") is failed
    for read, sent in zip(result.content, content, strict=True):
        assert read.WhichOneof("block") == ("text" if isinstance(sent.block, str) else "blob")
        assert (read.resource_uri, read.text_media_type) == (sent.resource_uri, sent.text_media_type)
        assert read.HasField("annotations") is (sent.annotations is not None)
        if sent.annotations is not None:
            said = read.annotations
            assert (tuple(said.audience), said.last_modified) == sent.annotations[::2]
            assert (said.priority if said.HasField("priority") else None) == sent.annotations.priority


@given(U64, TEXT, TEXT, st.booleans(), TEXT)
def test_failures_are_what_the_generated_code_reads(
    number: int, message: str, reason: str, retryable: bool, details: str
) -> None:
    failure = plugin_frames.Failure(message, reason, retryable=retryable, details_json=details.encode())
    result = pb.PluginFrame.FromString(
        undelimited(plugin_frames.delimited_frame(plugin_frames.RESULT, plugin_frames.encode_failure(number, failure)))
    ).result
    assert result.HasField("error")
    read = result.error
    assert (read.message, read.reason, read.retryable, read.details_json) == (message, reason, retryable, details)


@given(U64, st.integers(1, 4), TEXT, TEXT)
def test_log_lines_are_what_the_generated_code_reads(number: int, level: int, message: str, fields: str) -> None:
    log = pb.PluginFrame.FromString(
        undelimited(
            plugin_frames.delimited_frame(
                plugin_frames.LOG, plugin_frames.encode_log(number, level, message, fields.encode())
            )
        )
    ).log
    assert (log.invocation_id, log.level, log.message, log.fields_json) == (number, level, message, fields)


@given(
    st.sampled_from(LEVELS),
    st.lists(st.sampled_from(["read", "write", "binary:rg", "host:a.example:443", "secret:key"])),
    st.tuples(*[st.none() | st.floats(0.001, 3600)] * 2),
    st.sampled_from([None, "process", "call"]),
    st.booleans(),
    st.dictionaries(st.sampled_from(LIMITS), st.integers(1, 2**62)),
)
def test_definitions_are_what_the_generated_code_reads(  # noqa: PLR0917
    level: str,
    requires: list[str],
    timeouts_s: tuple[float | None, float | None],
    isolation: str | None,
    sequential: bool,
    limits: dict[str, int],
) -> None:
    declaration = Declaration(
        name="a_tool",
        title="A tool",
        side_effects=level,
        idempotent=sequential,
        requires=requires,
        timeout_s=timeouts_s[0],
        idle_timeout_s=timeouts_s[1],
        isolation=isolation,
        sequential=sequential,
        limits=limits,
        prepares_arguments=sequential,
    )
    read = ToolDefinition.FromString(declaration.encode_definition("It does.", b'{"type":"object"}', b""))
    assert (read.name, read.title, read.description) == ("a_tool", "A tool", "It does.")
    assert (read.input_schema_json, read.output_schema_json) == ('{"type":"object"}', "")
    assert read.side_effects == LEVELS.index(level) + 1
    assert list(read.requires) == sorted(set(requires))
    assert (read.HasField("timeout"), read.HasField("idle_timeout")) == tuple(each is not None for each in timeouts_s)
    for field, wanted in zip((read.timeout, read.idle_timeout), timeouts_s, strict=True):
        assert wanted is None or math.isclose(field.ToTimedelta().total_seconds(), wanted, abs_tol=1e-6)
    assert read.prepares_arguments == sequential
    assert read.isolation == {None: 0, "process": 1, "call": 2}[isolation]
    assert read.execution_mode == (2 if sequential else 1)
    names = {"cpu_s": "cpu_seconds"}
    assert {field.name: value for field, value in read.limits.ListFields()} == {
        names.get(name, name): value for name, value in limits.items()
    }


def undelimited(frame: bytes) -> bytes:
    size, start = varint.decode(frame, 0, len(frame))
    assert size == len(frame) - start
    return frame[start:]
