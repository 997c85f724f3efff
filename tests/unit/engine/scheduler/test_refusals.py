"""Ids that the model has no tokens for: refused where they come in, and nobody else notices."""

from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.driven import Driven
from support.vaults import code, line, quoting

from orchestrator.engine.llama.memory import LlamaBackend
from orchestrator.engine.messages import Grant, InferenceJob, Outcome, Reason, ids_to_bytes
from orchestrator.engine.scheduler.admission import FloorIds, refused

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
