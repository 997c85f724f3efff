"""Who may enter: foreign ids and settings out of range are refused with a name, and nobody else notices; a failure of
llama.cpp in one pool costs that pool, and what had sent nothing is answered all the same.
"""

from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.driven import Driven
from support.examples import few
from support.failing import POISON, FailingBackend, FailingMemory
from support.machine import END_EVERY, Machine, naive_answer
from support.vaults import code, line, quoting

from orchestrator.engine.backend import BackendError
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.messages import Cancel, Grant, InferenceJob, Outcome, Reason, Sampling, Urgency, ids_to_bytes
from orchestrator.engine.scheduler.admission import MOST_LOGPROBS, RANGES, FloorIds, out_of_range, refused

GRANT, TOKENS = Grant(1, 4096, 2048), 100
FOREIGN = [2**31 - 1, 2**31, 2**32 - 1]
ids = st.lists(st.one_of(st.integers(0, 120), st.sampled_from(FOREIGN)), max_size=20)


@given(ids, ids)
def test_a_job_is_refused_if_and_only_if_a_token_of_its_prompt_is_not_in_the_vocabulary(
    floor: list[int], tail: list[int]
) -> None:
    job = InferenceJob(1, "code", ids_to_bytes(tail), 1, 5)
    found = refused(job, {"code": FloorIds(array("I", floor), "code")}, GRANT, TOKENS)
    assert (found is not None) == any(token >= TOKENS for token in (*floor, *tail))
    assert found is None or found.reason is Reason.TOKENS


def test_a_refusal_says_which_token_and_where_it_stands() -> None:
    floors = {"code": FloorIds(array("I", [1, 2]), "code"), "odd": FloorIds(array("I", [1, 100]), "odd")}
    details = []
    for floor, tail in (("code", [7, 4_000_000_000]), ("odd", [7])):
        found = refused(InferenceJob(1, floor, ids_to_bytes(tail), 1, 5), floors, GRANT, TOKENS)
        assert found is not None
        details.append(found.detail)
    assert details == [
        "the prompt has token 4000000000, the vocabulary 100 tokens: its ids are damaged or another model's",
        "floor odd has token 100, the vocabulary 100 tokens: its ids are damaged or another model's",
    ]


@pytest.fixture(scope="module")
def quoter(quoter_model: Path) -> Iterator[LlamaBackend]:
    with quoting(quoter_model) as backend:
        yield backend


def encoded(driven: Driven, text: str) -> list[int]:
    (found,) = driven.backend.encode([text], control=False)
    return list(found)


@pytest.mark.parametrize("token", [None, *FOREIGN], ids=str)
def test_a_foreign_id_is_refused_while_an_answer_goes_on_to_its_end(quoter: LlamaBackend, token: int | None) -> None:
    driven, foreign = Driven(quoter), quoter.tokens if token is None else token
    floor = encoded(driven, "".join(f"{line(vault)}{code(vault)}\n" for vault in range(10, 30)))
    driven.floor("code", floor)
    driven.floor("odd", [*floor, foreign])
    driven.ask(1, "code", encoded(driven, line(12)), 12)
    while not driven.text(1):
        driven.round()
    driven.ask(2, "code", [foreign], 12)
    driven.ask(3, "odd", encoded(driven, line(13)), 12)
    driven.finish()
    assert [(driven.ends[ticket].outcome, driven.ends[ticket].reason) for ticket in (2, 3)] == [
        (Outcome.REFUSED, Reason.TOKENS)
    ] * 2
    assert driven.text(1) == code(12)
    assert driven.loop.counters.pool_failures == 0
    driven.close()


@pytest.mark.parametrize("token", [None, *FOREIGN], ids=str)
def test_the_text_of_a_foreign_id_is_nothing(quoter: LlamaBackend, token: int | None) -> None:
    known = quoter.encode(["def"], control=False)[0]
    assert quoter.pieces([*known, quoter.tokens if token is None else token]) == b"def"


def test_the_last_token_of_the_vocabulary_is_computed(quoter: LlamaBackend) -> None:
    driven = Driven(quoter)
    driven.floor("code", [1, 2, 3])
    driven.ask(1, "code", [quoter.tokens - 1], 1)
    driven.finish()
    assert driven.ends[1].outcome is Outcome.DONE
    driven.close()


JOB = InferenceJob(1, "code", ids_to_bytes([1]), 1, 5)
NAN, INF = float("nan"), float("inf")


def refusal(**settings: Any) -> str:
    found = out_of_range(replace(JOB, sampling=Sampling(**settings)))
    assert found is None or found.reason is Reason.SAMPLING
    return found.detail if found else ""


@pytest.mark.parametrize("name", [name for name, _, _ in RANGES])
@pytest.mark.parametrize("value", [NAN, INF, -INF, -1, -0.001, 1e12, 10**400])
def test_what_is_no_number_or_out_of_its_range_is_refused_by_name(name: str, value: float) -> None:
    assert refusal(**{name: value}).startswith(f"{name} {value} is not between")


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 2.1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": 1.5},
        {"repeat_penalty": 0.0},
        {"repeat_penalty": 11.0},
        {"logprobs": -1},
        {"logprobs": MOST_LOGPROBS + 1},
    ],
)
def test_what_stands_just_outside_is_refused_too(settings: dict[str, Any]) -> None:
    assert next(iter(settings)) in refusal(**settings)


@given(
    st.fixed_dictionaries(
        {
            name: st.floats(least, most) if isinstance(least, float) else st.integers(least, most)
            for name, least, most in RANGES
        }
        | {"logprobs": st.none() | st.integers(0, MOST_LOGPROBS), "seed": st.none() | st.integers()}
    )
)
def test_everything_within_is_taken(settings: dict[str, Any]) -> None:
    assert refusal(**settings) == ""


def test_an_answer_of_less_than_no_tokens_is_refused_and_one_of_none_is_a_prefill() -> None:
    assert out_of_range(replace(JOB, max_tokens=0)) is None
    found = out_of_range(replace(JOB, max_tokens=-3))
    assert found is not None
    assert found.detail == "max_tokens -3 is below 0"


@pytest.mark.parametrize("name", ["top_k", "seed", "logprobs"])
def test_what_counts_is_a_whole_number(name: str) -> None:
    assert refusal(**{name: 5.5}) == f"{name} 5.5 is no whole number"


def test_a_seed_may_be_as_large_as_it_likes() -> None:
    assert refusal(seed=10**400) == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"stop": ("a", 7)}, "the stop string 7 is no text"), ({"max_tokens": 2.5}, "max_tokens 2.5 is no whole number")],
)
def test_how_an_answer_ends_is_told_in_texts_and_whole_tokens(changed: dict[str, Any], said: str) -> None:
    found = out_of_range(replace(JOB, **changed))
    assert found is not None
    assert found.detail == said


def test_the_loop_refuses_such_a_job_at_its_door_and_serves_the_next() -> None:
    machine = Machine()
    machine.floor("code", [1, 2, 3])
    machine.loop.handle(replace(JOB, sampling=Sampling(temperature=NAN)))
    machine.loop.handle(replace(JOB, ticket=2, max_tokens=-1))
    machine.ask(3, "code", [1], 2)
    machine.finish()
    reasons = [machine.ends[ticket][0].reason for ticket in (1, 2)]
    assert reasons == [Reason.SAMPLING, Reason.SAMPLING]
    assert machine.ends[3][0].outcome is Outcome.DONE


@pytest.mark.parametrize(
    "changed",
    [{"sampling": Sampling(top_k="many")}, {"tail": b"abc"}, {"stop": 7}, {"sampling": None}],  # type: ignore[arg-type]
)
def test_a_job_that_cannot_even_be_checked_is_refused_and_the_next_one_served(changed: dict[str, Any]) -> None:
    machine = Machine()
    machine.floor("code", [1, 2, 3])
    machine.loop.handle(replace(JOB, **changed))
    machine.ask(2, "code", [1], 2)
    machine.finish()
    assert machine.ends[1][0].outcome is Outcome.REFUSED
    assert "cannot be checked" in machine.ends[1][0].detail
    assert machine.ends[2][0].outcome is Outcome.DONE


CODE, OTHER = [n % 50 for n in range(300)], [n % 40 + 50 for n in range(200)]


def machine(**options: int) -> Machine:
    made = Machine(backend=FailingBackend(END_EVERY), **options)
    made.floor("code", CODE)
    made.floor("other", OTHER)
    return made


class SlowToOpen(FailingBackend):
    """A context, also one that cannot be had, takes more than a round's time."""

    machine: Machine | None = None

    def open(self, cells: int, sequences: int) -> FailingMemory:
        if self.machine is not None:
            self.machine.time += 1
        return super().open(cells, sequences)


def failing(made: Machine) -> FailingBackend:
    assert isinstance(made.backend, FailingBackend)
    return made.backend


def outcome(made: Machine, ticket: int) -> tuple[Outcome, Reason]:
    (end,) = made.ends[ticket]
    return end.outcome, end.reason


def until_answering(made: Machine, ticket: int) -> None:
    while not made.answer(ticket):
        made.round()


def test_a_failed_step_ends_what_had_begun_in_its_pool_and_nothing_in_another_one() -> None:
    made = machine(batch=512)
    made.ask(1, "other", [7], 400)
    until_answering(made, 1)
    made.ask(2, "code", [4], 400)
    until_answering(made, 2)
    said = made.answer(2)[:]
    failing(made).broken = made.loop.pools.by_name["code"].memory
    made.round()
    failing(made).broken = None
    made.finish()
    assert made.answer(1) == naive_answer([*OTHER, 7], 400)
    assert (outcome(made, 2), made.answer(2)) == ((Outcome.FAILED, Reason.ENGINE), said)


def test_what_had_sent_nothing_is_answered_as_if_nothing_had_happened() -> None:
    made = machine()
    made.ask(1, "code", [3], 20)
    made.round()
    failing(made).failures = 1
    made.finish()
    assert made.answer(1) == naive_answer([*CODE, 3], 20)
    (end,) = made.ends[1]
    assert (end.outcome, end.computed, end.cached) == (Outcome.DONE, 301, 0)
    assert made.loop.counters.pool_failures == 1


def test_a_poisonous_ticket_fails_alone_and_those_beside_it_are_answered() -> None:
    made = machine()
    for ticket in range(1, 7):
        made.ask(ticket, "code", [POISON] if ticket == 3 else [ticket], 10)
    made.finish()
    assert outcome(made, 3) == (Outcome.FAILED, Reason.ENGINE)
    for ticket in (1, 2, 4, 5, 6):
        assert made.answer(ticket) == naive_answer([*CODE, ticket], 10)


def test_a_ticket_handed_in_again_after_a_crash_is_not_tried_twice_more() -> None:
    made = machine()
    made.loop.handle(InferenceJob(1, "code", ids_to_bytes([POISON]), 1, 5, replay=1))
    made.finish()
    assert outcome(made, 1) == (Outcome.FAILED, Reason.ENGINE)
    assert made.loop.counters.pool_failures == 1


def test_a_second_failure_in_a_row_with_nobody_who_was_there_before_ends_the_child() -> None:
    made = machine()
    made.ask(1, "code", [1], 400)
    until_answering(made, 1)
    failing(made).failures = 1
    made.round()
    assert outcome(made, 1)[0] is Outcome.FAILED
    failing(made).failures = 1
    made.ask(2, "code", [2], 5)
    with pytest.raises(BackendError, match="this step fails"):
        made.loop.round()


def test_a_backend_that_never_succeeds_again_ends_the_child_although_every_ticket_is_a_suspect() -> None:
    made = machine()
    for ticket in (1, 2, 3):
        made.ask(ticket, "code", [ticket], 5)
    failing(made).failures = 1000
    with pytest.raises(BackendError):
        made.finish()
    assert [ticket for ticket in (1, 2, 3) if ticket in made.ends] == [1]


def test_a_floor_that_failed_in_the_background_keeps_no_question_waiting() -> None:
    made = machine()
    made.loop.handle(InferenceJob(1, "code", b"", 0, 0, urgency=Urgency.BACKGROUND))
    made.round()
    failing(made).failures = 1
    made.round()
    made.round()
    made.ask(2, "code", [2], 3)
    made.finish()
    assert outcome(made, 1) == (Outcome.DONE, Reason.PREFILLED)
    assert made.answer(2) == naive_answer([*CODE, 2], 3)


def test_a_context_that_cannot_be_had_fails_its_ticket_and_says_so() -> None:
    made = machine()
    made.ask(1, "other", [1], 400)
    until_answering(made, 1)
    failing(made).most_cells = 0
    made.ask(2, "code", [1], 5)
    made.finish()
    assert outcome(made, 2) == (Outcome.FAILED, Reason.ENGINE)
    assert "no context of" in made.ends[2][0].detail
    assert made.answer(1) == naive_answer([*OTHER, 1], 400)


def test_where_the_machine_has_less_than_was_granted_idle_pools_make_room() -> None:
    made = machine(cells=16_384)
    made.ask(1, "other", [1], 5)
    made.finish()
    failing(made).most_cells = 700
    made.ask(2, "code", [1], 5)
    made.finish()
    assert made.answer(2) == naive_answer([*CODE, 1], 5)
    assert list(made.loop.pools.by_name) == ["code"]


def test_a_ticket_called_off_while_pools_are_closed_for_it_has_the_next_one_close_none(tmp_path: Path) -> None:
    made = Machine(cells=32_768, folder=tmp_path, disk_budget=8, backend=SlowToOpen(END_EVERY))  # keeps nothing
    for name, ids in (("code", CODE), ("other", OTHER), ("third", [1] * 200)):
        made.floor(name, ids)
    slow = failing(made)
    assert isinstance(slow, SlowToOpen)
    slow.machine = made
    made.ask(1, "code", [1], 5)
    made.finish()
    made.ask(2, "other", [7], 400)
    until_answering(made, 2)
    slow.most_cells = sum(pool.memory.cells for pool in made.loop.pools.by_name.values())
    made.ask(3, "third", [1], 5)
    made.round()
    assert "code" in made.loop.pools.by_name, "the round had no time to close it"
    made.loop.handle(Cancel(3))
    slow.most_cells = 1 << 30
    made.ask(4, "third", [1], 5)
    made.round()
    assert {"code", "third"} <= made.loop.pools.by_name.keys()
    made.finish()
    assert made.answer(4) == naive_answer([*[1] * 200, 1], 5)


def test_where_a_pool_cannot_grow_tickets_wait_for_the_one_that_runs_and_what_never_fits_fails_with_words() -> None:
    made = machine(cells=32_768, window=16_384, batch=4096)
    made.ask(1, "code", [1], 20)
    made.round()
    opened, failing(made).most_cells = failing(made).opened, made.loop.pools.held()
    made.ask(2, "code", [2] * 8200, 20)
    made.ask(3, "code", [3] * 8500, 20)
    made.finish()
    assert made.answer(2) == naive_answer([*CODE, *[2] * 8200], 20)
    assert outcome(made, 3) == (Outcome.FAILED, Reason.ENGINE)
    assert "no context of" in made.ends[3][0].detail
    assert failing(made).opened - opened <= 4, "a larger context is asked for once, not each round"


def test_a_pool_that_failed_and_cannot_be_opened_again_ends_the_child() -> None:
    made = machine()
    made.ask(1, "code", [1], 5)
    made.round()
    failing(made).failures, failing(made).most_cells = 1, 0
    made.round()
    with pytest.raises(BackendError, match="no context"):
        made.loop.round()


@few(50)
@given(
    st.lists(st.tuples(st.sampled_from(["code", "other"]), st.integers(1, 9), st.integers(0, 12)), max_size=12),
    st.lists(st.sampled_from([0, 0, 0, 1, 2]), max_size=40),
)
def test_under_any_failures_every_ticket_ends_once_and_every_answer_that_is_one_is_right(
    asks: list[tuple[str, int, int]], script: list[int]
) -> None:
    made, floors = machine(), {"code": CODE, "other": OTHER}
    for number, (floor, token, most) in enumerate(asks, start=1):
        made.ask(number, floor, [token], most)
    try:
        for failures in script:
            failing(made).failures = failures
            made.round()
        failing(made).failures = 0
        made.finish()
    except BackendError:
        return  # the process ends; what then follows is the client's
    for number, (floor, token, most) in enumerate(asks, start=1):
        (end,) = made.ends[number]
        expected = naive_answer([*floors[floor], token], most)
        assert made.answer(number) == (
            expected if end.outcome is Outcome.DONE else expected[: len(made.answer(number))]
        )
        assert end.outcome in (Outcome.DONE, Outcome.FAILED)
        assert end.outcome is Outcome.FAILED or end.computed + end.cached == end.prompt
    made.loop.handle(Grant(2, 0, 2048))
    assert made.loop.pools.by_name == {}


def test_a_job_without_a_cache_is_computed_whole_beside_the_cells_and_leaves_no_pool() -> None:
    made = machine(cells=16_384)
    made.ask(1, "code", [3], 5)
    made.finish()
    made.loop.handle(InferenceJob(2, "code", ids_to_bytes([3]), 1, 5, uncached=True))
    made.finish()
    (end,) = made.ends[2]
    assert (end.cached, end.computed, made.answer(2)) == (0, len(CODE) + 1, made.answer(1))
    assert list(made.loop.pools.by_name) == ["code"]
