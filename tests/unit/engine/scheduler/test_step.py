"""Drafts change how fast an answer comes and never what it says; where they do not pay they stop."""

import json
import math
import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.driven import NEAR, Driven
from support.fake_engine import FakeBackend, FakeMemory
from support.machine import END_EVERY, Machine, naive_answer

from orchestrator.engine.backend import Run, Sampled, Sampler, SamplerMade
from orchestrator.engine.builtin import ensure
from orchestrator.engine.cache.tree import Tree
from orchestrator.engine.calling import CallForm, OfferedTool, ToolRules
from orchestrator.engine.costs import Costs
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.llama.memory import LlamaMemory
from orchestrator.engine.messages import (
    AnswerDelta,
    Completion,
    Grant,
    InferenceJob,
    Outcome,
    PutFloor,
    Sampling,
    bytes_to_ids,
    ids_to_bytes,
)
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.scheduler.loop import Loop
from orchestrator.engine.scheduler.planner import Limits, plan_round
from orchestrator.engine.scheduler.step import GRAM, Draft, Drafting, recent
from orchestrator.engine.scheduler.ticket import Ticket

CODE = "".join(
    f"def area_{name}(width, height, depth, unit): return convert(width * height * depth + {name}, unit)\n"
    for name in range(40)
)
SHORT = CODE[:300]  # where the prompt does not matter: the model needs seconds for the whole of it
BATCH = 512
GREEDY = Sampling()
ASKED = "\nWhat does area_17 return?\ndef area_17(width, height, depth"


class Asked:
    """An answer on a fresh loop, the last one of so many `times`, and how it was made."""

    def __init__(
        self,
        backend: LlamaBackend,
        floor: list[int],
        tail: list[int],
        *,
        drafts: bool,
        most: int,
        clock: Callable[[], float] | None = None,
        times: int = 1,
        sampling: Sampling = GREEDY,
        uncached: bool = False,
    ) -> None:
        ticks = count()
        self.end = Completion
        self.loop = Loop(
            backend, 4, Limits(BATCH, drafts=drafts), self._hear, clock or (lambda: next(ticks) / 1000), None
        )
        self.loop.handle(Grant(1, cells=8192, window=8192))
        self.loop.handle(PutFloor("code", ids_to_bytes(floor)))
        for ticket in range(1, times + 1):
            self.text, self.ids, self.steps = "", list[int](), -self.loop.counters.steps
            self.loop.handle(
                InferenceJob(
                    ticket, "code", ids_to_bytes(tail), 0, max_tokens=most, sampling=sampling, uncached=uncached
                )
            )
            if sampling.constrained:
                self.loop.handle(SamplerMade(ticket, backend.sampler(sampling)))
            while self.loop.busy():
                self.loop.round()
                self.loop.check()
            self.steps += self.loop.counters.steps
        for name in list(self.loop.pools.by_name):
            self.loop.pools.close(name)

    def _hear(self, messages: list[object]) -> None:
        for message in messages:
            if isinstance(message, AnswerDelta):
                self.text += message.text
                self.ids += bytes_to_ids(message.ids)
            elif isinstance(message, Completion):
                self.end = message


Decode = Callable[[LlamaMemory, Sequence[Run]], None]


class RowClock:
    """Time passes with what is computed, as on a CPU: 2 ms a step and 1 ms a row."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def charge(self, decode: Decode) -> Decode:
        def charged(memory: LlamaMemory, runs: Sequence[Run]) -> None:
            self.now += (2 + sum(len(run.tokens) for run in runs)) / 1000
            decode(memory, runs)

        return charged


@pytest.fixture(scope="module")
def quoter(quoter_model: Path) -> Iterator[LlamaBackend]:
    backend = LlamaBackend(EngineSpec(str(quoter_model), threads=1, gpu_layers=0))
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def noise(models: Path) -> Iterator[LlamaBackend]:
    """Random weights: what it says follows from everything before, and quotes nothing."""
    backend = LlamaBackend(EngineSpec(str(ensure("builtin:noise-s", models)), threads=1, gpu_layers=0))
    yield backend
    backend.close()


def test_an_answer_that_quotes_is_the_same_with_drafts_and_takes_fewer_steps(quoter: LlamaBackend) -> None:
    floor, tail = quoter.encode([CODE, ASKED], control=False)
    plain, drafted = (Asked(quoter, floor, tail, drafts=drafts, most=40) for drafts in (False, True))
    assert drafted.text == plain.text
    assert "height" in plain.text
    assert (plain.end.drafted, plain.end.accepted) == (0, 0)
    assert drafted.end.accepted > 5
    assert drafted.loop.counters.steps < plain.loop.counters.steps


def test_an_answer_without_a_cache_may_end_in_the_middle_of_a_draft(quoter: LlamaBackend) -> None:
    """Its memory is closed with it: no cell of the draft's rest is taken back."""
    line = "The access code of vault zebra is"
    floor, tail = quoter.encode([f"{line} 4815162.\n\n\ndef unlock():\n    return None\n", line], control=False)
    cached, alone = (Asked(quoter, floor, tail, drafts=True, most=40, uncached=uncached) for uncached in (False, True))
    assert (alone.text, alone.end.outcome) == (cached.text, Outcome.DONE)
    assert alone.text.startswith(" 4815162")
    assert alone.end.accepted < alone.end.drafted, "so it ended within one"
    assert alone.loop.pools.by_name == {}


def test_an_answer_to_a_prompt_that_was_cached_is_drafted_as_soon(quoter: LlamaBackend) -> None:
    floor, tail = quoter.encode([CODE, ASKED], control=False)
    first, again = (Asked(quoter, floor, tail, drafts=True, most=12, times=times) for times in (1, 2))
    assert again.ids == first.ids
    assert again.end.computed == 1
    assert again.steps - 1 <= first.steps - math.ceil(first.end.computed / BATCH)


Branches = st.dictionaries(st.integers(0, 8), st.integers(0, 3), max_size=3)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(0, 9), st.integers(0, 9), Branches)
def test_the_last_tokens_are_those_of_prompt_and_answer_however_their_path_is_cut(
    prompt: list[int], cut: int, before: int, branches: dict[int, int]
) -> None:
    """`before`: how much of the prompt another one had; `branches`: where others go on otherwise, and with what."""
    tree = Tree(FakeMemory(1 << 20, 32, 1), range(31))
    ticket = Ticket(InferenceJob(1, "f", b"", 1, 9), array("I", prompt), min(cut, len(prompt)), 1, 0.0)
    tree.lease(ticket.ids[:before], ticket.cut, 1, before)
    ticket.tip = tree.lease(ticket.ids, ticket.cut, 1, len(prompt) - 1)
    said = prompt[:]
    for place in range(9):
        ticket.pending = place
        assert recent(ticket) == [*said, place][-GRAM:]
        if place in branches:
            tree.lease(array("I", [*said, branches[place]]), ticket.cut, 1, len(said))
        ticket.tip = tree.extend(ticket.tip, place)
        said.append(place)


def test_an_answer_whose_drafts_are_wrong_is_the_same_and_soon_goes_without(
    quoter: LlamaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model quotes what eight tokens agree with; behind it stand decoys that seven agree with."""
    code, tail, wrong = quoter.encode([CODE, ASKED, " nothing of this is ever said here"], control=False)
    told = [*tail, *Asked(quoter, code, tail, drafts=False, most=40).ids]
    decoys = [token for at in range(len(told) - GRAM) for token in (*told[at : at + GRAM], *wrong)]
    clock = RowClock()
    monkeypatch.setattr(LlamaMemory, "decode", clock.charge(LlamaMemory.decode))
    plain, drafted = (
        Asked(quoter, [*code, *decoys], tail, drafts=drafts, most=40, clock=clock) for drafts in (False, True)
    )
    assert drafted.ids == plain.ids
    assert len(plain.ids) > 20
    assert drafted.end.drafted > drafted.end.accepted
    assert 1 <= drafted.loop.counters.drafts <= 10, f"{drafted.loop.counters.drafts} drafts that were wrong"


def test_on_a_model_that_does_not_quote_drafts_change_an_answer_only_where_two_tokens_are_as_likely(
    noise: LlamaBackend,
) -> None:
    """Each answer is drafted: its prompt ends as a piece of its floor does, behind which stands another's answer."""
    tried = 0
    for seed in range(6):
        chance = random.Random(seed)
        begin, tail = ([chance.randrange(300, 3800) for _ in range(size)] for size in (40, 12))
        first = Asked(noise, begin, tail, drafts=False, most=12)
        floor = [*begin, *tail, *first.ids]
        plain, drafted = (Asked(noise, floor, tail, drafts=drafts, most=12) for drafts in (False, True))
        tried += drafted.end.drafted
        if drafted.ids != plain.ids:
            same = next(at for at, pair in enumerate(zip(plain.ids, drafted.ids, strict=False)) if len(set(pair)) == 2)
            likely = Driven(noise).recomputed([*floor, *tail, *plain.ids[:same]], 1)[0][1]
            assert abs(likely[plain.ids[same]] - likely[drafted.ids[same]]) < NEAR
    assert tried > 0


def drafts_planned(expected: float) -> tuple[tuple[int, tuple[int, ...]], ...]:
    (step,) = plan_round({0: [1]}, (), {0: 1000}, Limits(512), Costs(), {1: Draft((7,) * 8, expected)})
    return step.drafts


def test_drafts_that_are_never_right_stop() -> None:
    drafting = Drafting((), accepted=8.0)
    assert drafts_planned(drafting.expected)
    for _ in range(20):
        drafting.learn(drafted=8, accepted=0)
    assert not drafts_planned(drafting.expected)


HERMES = CallForm("<call>", '<call>\n{"name": "', '", "arguments": ', "}\n</call>")
AREA = {"properties": {"area_of_the_whole": {"enum": [1, 2]}}, "required": ["area_of_the_whole"]}
CALLING = ToolRules(HERMES, (OfferedTool("compute_the_area", json.dumps(AREA)),), required=True)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_a_grammar_forces_is_computed_in_one_step_and_is_the_same(noise: LlamaBackend, temperature: float) -> None:
    floor, tail = noise.encode([SHORT, ASKED], control=False)
    sampling = Sampling(temperature=temperature, seed=3, calls=CALLING)
    plain, forced = (Asked(noise, floor, tail, drafts=drafts, most=80, sampling=sampling) for drafts in (False, True))
    call = json.loads(plain.text.removeprefix("<call>\n").removesuffix("\n</call>"))
    assert forced.text == plain.text
    assert call["name"] == "compute_the_area"
    assert call["arguments"]["area_of_the_whole"] in (1, 2)
    assert forced.loop.counters.forced_tokens > 15
    assert forced.steps <= plain.steps - forced.loop.counters.forced_tokens
    assert (forced.end.drafted, forced.loop.counters.drafts) == (0, 0), "what is forced is no guess"


def test_the_head_of_a_call_costs_one_step(noise: LlamaBackend) -> None:
    """Up to what the model has to choose: whether white space stands before the first argument."""
    head_text = '<call>\n{"name": "compute_the_area", "arguments": {'
    floor, tail, head = noise.encode([SHORT, ASKED, head_text], control=False)
    first, whole = (
        Asked(noise, floor, tail, drafts=True, most=most, sampling=Sampling(calls=CALLING)) for most in (1, len(head))
    )
    assert len(head) > 15
    assert whole.steps == first.steps + 1, "the first token comes of the prompt's own step"


def test_a_forced_text_ends_with_the_tokens_that_were_asked_for(noise: LlamaBackend) -> None:
    floor, tail = noise.encode([SHORT, ASKED], control=False)
    for most in (1, 2, 6, 11):
        asked = Asked(noise, floor, tail, drafts=True, most=most, sampling=Sampling(calls=CALLING))
        assert (len(asked.ids), asked.end.generated) == (most, most)


def test_an_answer_that_fits_a_schema_is_drafted_as_one_without(quoter: LlamaBackend) -> None:
    text = '{"said": "a text that is long enough to be quoted from one end of it to the other end"}'
    floor, tail = quoter.encode([f"{CODE}\n{text}\n", "\nOnce more:\n"], control=False)
    schema = json.dumps({"properties": {"said": {"type": "string", "maxLength": 200}}, "required": ["said"]})
    sampling = Sampling(schema=schema)
    plain, drafted = (Asked(quoter, floor, tail, drafts=drafts, most=60, sampling=sampling) for drafts in (False, True))
    assert drafted.text == plain.text
    assert drafted.end.accepted > 5
    assert drafted.steps < plain.steps


class WithControlToken(FakeBackend):
    """Its token 'e' is a control token: without a text."""

    def pieces(self, ids: Sequence[int]) -> bytes:
        return super().pieces(ids).replace(b"e", b"")


def test_a_control_token_that_the_model_samples_is_not_among_the_ids_of_its_text() -> None:
    machine = Machine(backend=WithControlToken(END_EVERY))
    machine.floor("code", list(b"code"))
    computed = set[int]()
    for ticket in range(1, 20):
        machine.ask(ticket, "code", [ticket], 40)
        machine.finish()
        computed |= {*naive_answer([*b"code", ticket], 40)}
        assert machine.answer(ticket) == [one for one in naive_answer([*b"code", ticket], 40) if one != ord("e")]
    assert ord("e") in computed


class Spelling(FakeMemory):
    """Its 'e' is a control token that calls are written with."""

    def sample(self, row: int, sampler: Sampler) -> Sampled:
        found = super().sample(row, sampler)
        return replace(found, spelled=b"e" if found.token == ord("e") else b"")


class WithSpelledToken(WithControlToken):
    def open(self, cells: int, sequences: int) -> FakeMemory:
        return Spelling(cells, sequences, self.end_every, footprint=cells * 8, ranges=self.info.ranges)


def test_a_control_token_that_calls_are_written_with_is_among_the_ids_of_its_text() -> None:
    machine = Machine(backend=WithSpelledToken(END_EVERY))
    machine.floor("code", list(b"code"))
    computed = set[int]()
    for ticket in range(1, 20):
        machine.ask(ticket, "code", [ticket], 40)
        machine.finish()
        computed |= {*naive_answer([*b"code", ticket], 40)}
        assert machine.answer(ticket) == naive_answer([*b"code", ticket], 40)
    assert ord("e") in computed
