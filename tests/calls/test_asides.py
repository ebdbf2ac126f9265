"""What a call took from outside, and what it asks of models, is made ready for the journal beside the event loop."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest
from fumehood_sdk.wire.recorded_values import RecordedValue
from fumehood_server.calls.call import Call
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.records import CallRecords
from fumehood_server.calls.steps.inputs import InputParts, StepInputs
from fumehood_server.config.engines import EngineConfig, Provider
from fumehood_server.journal.journal import StoredJournal
from fumehood_server.journal.sqlite import SqliteReader, SqliteStore
from fumehood_server.model.call import CallOutcome
from fumehood_server.model.inferences import AskedInference
from fumehood_server.model.quotas import NO_QUOTAS
from fumehood_server.model.taken_values import TakenValues
from fumehood_server.orchestration.call_inferences import CallInferences
from fumehood_server.orchestration.engines.engine import FinishReason, InferenceAnswer, InferenceRequest
from fumehood_server.orchestration.messages import Message, Role
from fumehood_server.secrets import Redactor

from .fake import answered, request, tool


def stored(path: Path) -> StoredJournal:
    return StoredJournal(
        lambda: SqliteStore(path),
        lambda: SqliteReader(path),
        sidecar="0a0b0c0d",
        on_state=lambda _: None,
        window_s=60.0,
    )


@pytest.mark.parametrize(
    ("count", "name", "aside"),
    [(100, "n", False), (1000, "n", True), (300, "n" * 140, True)],
    ids=["few", "many", "long"],
)
async def test_many_values_and_those_of_long_names_are_made_in_a_thread_and_few_at_once(
    tmp_path: Path, count: int, name: str, aside: bool
) -> None:
    values = TakenValues(tuple(RecordedValue("http", name, each, "1", "") for each in range(count)))
    call, progress = Call(request()), Progress()
    progress.tool = tool()
    progress.result = replace(answered("done"), values=values)
    async with stored(tmp_path / "journal.db") as journal:
        records = CallRecords(journal)
        try:
            await records.start(call, progress)
            outcome = CallOutcome(call_id="call", tool="echo", content=(), details_json="", attempts=1)
            await records.end(call, progress, outcome)
            assert any(each.name.startswith("journal-payloads") for each in threading.enumerate()) is aside
        finally:
            records.close()


class Parrot:
    """An engine that says what it is asked."""

    name = "parrot"
    attempts = 1
    constrains_schema = constrains_grammar = False

    async def infer(self, asked: InferenceRequest, on_text: Callable[[str], None]) -> InferenceAnswer:
        on_text("")
        message = Message(role=Role.ASSISTANT, text=asked.messages[-1].text)
        return InferenceAnswer(message=message, finish_reason=FinishReason.STOP, model="parrot")


@contextlib.contextmanager
def searches() -> Iterator[list[object]]:
    """The steps in which this thread, the event loop's, looks for secrets."""
    counted: list[object] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_qualname == "FormSearch.replace":
            counted.append(frame.f_code)

    sys.setprofile(profile)
    try:
        yield counted
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(("size", "on_the_loop"), [(1000, 1), (1_000_000, 0)])
async def test_secrets_are_taken_out_of_a_long_inference_in_a_thread(
    tmp_path: Path, size: int, on_the_loop: int
) -> None:
    path = tmp_path / "journal.db"
    progress, call = Progress(), Call(request())
    progress.redactor = Redactor()
    progress.redactor.learn("KEY", b"s3cr3t-value")
    progress.tool = registered = tool()
    assert registered.spec is not None
    registered = replace(registered, spec=replace(registered.spec, engine="parrot"))
    text = "s3cr3t-value" + "x" * size
    asked = AskedInference(
        messages=(("user", text),), system_prompt="", max_tokens=10, temperature=None, stop_sequences=()
    )
    config = EngineConfig(name="parrot", provider=Provider.OPENAI, model="parrot", base_url="")
    async with stored(path) as journal:
        models = CallInferences(journal, NO_QUOTAS)
        records = CallRecords(journal)
        await records.start(call, progress)
        inputs = StepInputs(call, registered, progress, InputParts(asks=None, models=models))  # type: ignore[arg-type] # nobody is asked
        with models.serving({"parrot": Parrot()}, {"parrot": config}, None), searches() as counted:
            assert (await inputs.infer(asked)).text == text
        records.close()
    assert len(counted) == on_the_loop
    with contextlib.closing(SqliteReader(path)) as reader:
        payloads = b"".join(reader.payloads(0, 4).values())
    assert b"[secret KEY]xxx" in payloads
