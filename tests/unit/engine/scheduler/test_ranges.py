"""What a job may ask of sampling: whatever else is handed in is refused with the setting's name."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machine import Machine

from orchestrator.engine.messages import InferenceJob, Outcome, Reason, Sampling, ids_to_bytes
from orchestrator.engine.scheduler.admission import MOST_LOGPROBS, RANGES, out_of_range

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
