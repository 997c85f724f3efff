"""The real backend against itself without a cache: the same tokens, and their likelihoods within what shapes of batches do.

On the quoting model greedy text is also what the codex says. Positions and lengths are the laws that are checked after
every round: each sequence ends where its node does.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.driven import Driven
from support.vaults import code, line, quoting

from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.messages import Grant

VAULTS = range(10, 34)
MOST = 10


@pytest.fixture(scope="module")
def backend(quoter_model: Path) -> Iterator[LlamaBackend]:
    with quoting(quoter_model) as loaded:
        yield loaded


@pytest.fixture
def driven(backend: LlamaBackend, tmp_path: Path) -> Iterator[Driven]:
    """The codex, its floor computed and kept in RAM and on disk, with one conversation about it."""
    driven = Driven(backend, folder=tmp_path)
    driven.floor("code", encoded(driven, "".join(f"{line(vault)}{code(vault)}\n" for vault in VAULTS)))
    driven.views(1, "code", encoded(driven, f"\nWhat about the north? {line(12)}"), MOST)
    yield driven
    driven.close()


def encoded(driven: Driven, text: str) -> list[int]:
    (ids,) = driven.backend.encode([text], control=False)
    return list(ids)


def asked(driven: Driven, ticket: int, question: str, vault: int) -> None:
    """Asks, and holds text and likelihoods against the whole prompt computed from nothing."""
    tail = encoded(driven, question + line(vault))
    view = driven.views(ticket, "code", tail, MOST)
    assert driven.text(ticket) == code(vault)
    assert driven.near(view, driven.recomputed([*driven.floors["code"], *tail], MOST))


def evicted(driven: Driven) -> None:
    """All cells are taken; RAM keeps what they held."""
    driven.loop.handle(Grant(2, 0, 0))
    assert driven.loop.pools.by_name == {}
    driven.loop.handle(Grant(3, 4096, 4096))


def killed(driven: Driven) -> None:
    assert driven.store is not None
    driven.store.flush()
    driven.kill()


@pytest.mark.parametrize("event", [None, evicted, Driven.restart, killed])
@pytest.mark.parametrize("question", ["\n", "\nWhat about the north? ", "\nWhat about the west? "])
def test_what_is_shared_split_or_restored_is_as_if_it_had_been_computed(
    driven: Driven, event: Callable[[Driven], None] | None, question: str
) -> None:
    """`question` shares the floor, all of an earlier tail, or a part of one, which is split there."""
    if event is not None:
        event(driven)
    asked(driven, 2, question, 21)
    shared = len(driven.floors["code"]) + (2 if "What" in question else 0)
    assert driven.ends[2].cached >= shared


@pytest.mark.parametrize("event", [None, evicted, Driven.restart, killed])
def test_a_conversation_goes_on_as_if_all_of_it_had_been_computed(
    driven: Driven, event: Callable[[Driven], None] | None
) -> None:
    if event is not None:
        event(driven)
    begun = f"\nWhat about the north? {line(12)}{driven.text(1)}\n"
    asked(driven, 2, begun, 33)
    assert driven.ends[2].computed <= len(encoded(driven, f"\n{line(33)}")) + 2


@pytest.mark.parametrize("event", [None, evicted, Driven.restart, killed])
def test_an_amended_floor_gives_what_the_amended_prompt_computed_in_full_gives(
    driven: Driven, event: Callable[[Driven], None] | None
) -> None:
    """What changed in the codex stands behind its floor: the newest line is the one that is quoted."""
    amendment = f"\nchanged: {line(15)} 5550123.\n"
    driven.views(2, "code", encoded(driven, amendment + line(15)), MOST)
    assert driven.text(2) == " 5550123."
    if event is not None:
        event(driven)
    tail = encoded(driven, f"{amendment}And now? {line(15)}")
    view = driven.views(3, "code", tail, MOST)
    assert driven.text(3) == " 5550123."
    assert driven.near(view, driven.recomputed([*driven.floors["code"], *tail], MOST))
    assert driven.ends[3].computed <= len(tail) - len(encoded(driven, amendment)) + 4


def test_conversations_at_once_are_as_if_each_had_been_alone(driven: Driven) -> None:
    tails = {vault: encoded(driven, f"\nAt once: {line(vault)}") for vault in (11, 20, 28, 32)}
    for vault, tail in tails.items():
        driven.ask(vault, "code", tail, MOST, owner=vault, logprobs=16)
    driven.finish()
    for vault, tail in tails.items():
        assert driven.text(vault) == code(vault)
        assert driven.near(driven.view(vault), driven.recomputed([*driven.floors["code"], *tail], MOST))
    assert sum(driven.ends[vault].computed for vault in tails) == sum(map(len, tails.values()))
