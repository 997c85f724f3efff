"""Replies have their shapes also where no daemon of the tests gets: tool calls, thoughts, GPUs."""

import json
from dataclasses import replace

import anyio
from hypothesis import given
from hypothesis import strategies as some
from support.gpus import gpu
from support.wire_shapes import unlike

from governor.readings import HostReading, SensorSnapshot
from orchestrator.api.chat import Chunks, completed
from orchestrator.api.http import packed
from orchestrator.engine.messages import Chance, Chosen
from orchestrator.reports.status import sensors_report
from orchestrator.service import Answered, Text, Thought, ToolCall
from orchestrator.wire.answers import CompletionChunk, CompletionReply, GovernorState, Lore, PromptState, StrategyState
from orchestrator.wire.status import SensorsReport

STATE = Lore(
    strategy=StrategyState(
        name="CAG",
        tier="full",
        retrieval="none",
        task="hybrid",
        confidence=1.0,
        reason="it fits",
        window=8192,
        content_tokens=10,
        available_tokens=10,
        used_tokens=10,
        retrieval_budget=0,
    ),
    blocks=(),
    prompt=PromptState(tokens=10, cached=9, computed=1),
    governor=GovernorState(level="calm", kv_bytes=1, budget_tokens=10),
)
ANSWERED = Answered("stop", STATE, prompt_tokens=10, cached_tokens=9, completion_tokens=5)

chances = some.builds(Chance, some.integers(0, 9), some.binary(max_size=4), some.floats(max_value=0))
chosen = some.lists(some.builds(Chosen, chances, some.lists(chances, max_size=2).map(tuple)), max_size=2).map(tuple)
said = some.lists(
    some.builds(Text, some.text(), chosen)
    | some.builds(Thought, some.text())
    | some.builds(ToolCall, some.text(), some.text(), some.text()),
    max_size=5,
)


async def events_of(given_events):
    for event in [*given_events, ANSWERED]:
        yield event


@given(said)
def test_whatever_is_said_an_answer_has_its_shape(given_events):
    async def whole():
        return await completed("lore", events_of(given_events))

    assert unlike(CompletionReply, json.loads(packed(anyio.run(whole)))) == []


@given(said, some.booleans())
def test_whatever_is_said_each_chunk_has_its_shape(given_events, include_usage):
    async def chunks():
        return [chunk async for chunk in Chunks("lore", include_usage).of(events_of(given_events))]

    written = [json.loads(chunk.removeprefix(b"data: ")) for chunk in anyio.run(chunks)[:-1]]
    assert [unlike(CompletionChunk, one) for one in written] == [[]] * len(written)


def test_sensors_have_their_shape_with_gpus_and_where_nothing_is_known():
    unknown = HostReading()
    for gpus in ((), (gpu(0, 100, 60), replace(gpu(1, 100, None), clock_reasons=frozenset("ba")))):
        assert (
            unlike(SensorsReport, sensors_report(SensorSnapshot(1.0, gpus, unknown), 0.5).model_dump(mode="json")) == []
        )
