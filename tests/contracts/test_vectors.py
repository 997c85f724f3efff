"""The contract of an index of vectors, held by the one in LanceDB and the one in memory alike."""

import math
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.memory_vectors import MemoryVectors

from codex.vectors.embedder import Space
from codex.vectors.index import VectorIndex

SPACE = Space("words", 4)


@pytest.fixture(params=[VectorIndex, MemoryVectors], ids=["lancedb", "memory"])
def vectors(request: pytest.FixtureRequest, tmp_path: Path) -> VectorIndex:
    make: Callable[[], VectorIndex] = request.param if request.param is MemoryVectors else lambda: VectorIndex(tmp_path)
    return make()


def unit(*numbers: float) -> list[float]:
    length = math.hypot(*numbers)
    return [number / length for number in numbers]


NORTH, EAST, UP = unit(1, 0, 0, 0), unit(0, 1, 0, 0), unit(0, 0, 1, 0)


def found(vectors: VectorIndex, vector: list[float], n: int = 10, codex: str = "c", space: Space = SPACE) -> list[str]:
    return [digest for digest, _ in vectors.nearest(codex, space, vector, n)]


def test_an_unknown_codex_is_empty_and_no_error(vectors: VectorIndex) -> None:
    assert vectors.held("nobody", SPACE) == frozenset()
    assert vectors.count("nobody", SPACE) == 0
    assert vectors.nearest("nobody", SPACE, NORTH, 5) == ()
    assert vectors.adopt("nobody", SPACE, ["a"]) == frozenset()
    assert vectors.sweep("nobody", SPACE, ["a"]) == 0
    vectors.drop("nobody")
    vectors.add("nobody", SPACE, {})
    assert vectors.codices() == frozenset()


def test_the_nearest_come_best_first_with_their_cosine(vectors: VectorIndex) -> None:
    vectors.add("c", SPACE, {"n": NORTH, "e": EAST, "ne": unit(1, 1, 0, 0)})
    near = vectors.nearest("c", SPACE, unit(1, 0.2, 0, 0), 3)
    assert [digest for digest, _ in near] == ["n", "ne", "e"]
    assert [round(cosine, 4) for _, cosine in near] == [0.9806, 0.8321, 0.1961]
    assert found(vectors, NORTH, 1) == ["n"]
    assert found(vectors, NORTH, 0) == []


def test_what_is_held_stays_as_it_is(vectors: VectorIndex) -> None:
    vectors.add("c", SPACE, {"n": NORTH})
    vectors.add("c", SPACE, {"n": EAST, "u": UP})
    assert vectors.held("c", SPACE) == {"n", "u"}
    assert vectors.count("c", SPACE) == 2
    assert vectors.nearest("c", SPACE, NORTH, 1)[0][1] == pytest.approx(1)


def test_another_embedder_or_length_sees_nothing_of_it(vectors: VectorIndex) -> None:
    vectors.add("c", SPACE, {"n": NORTH})
    other, longer = Space("letters", 4), Space("words", 5)
    assert vectors.held("c", other) == vectors.held("c", longer) == frozenset()
    assert found(vectors, NORTH, space=other) == found(vectors, unit(1, 0, 0, 0, 0), space=longer) == []


def test_what_another_codex_embedded_is_taken_over(vectors: VectorIndex) -> None:
    vectors.add("first", SPACE, {"n": NORTH, "e": EAST})
    vectors.add("other space", Space("letters", 4), {"u": UP})
    assert vectors.adopt("second", SPACE, ["n", "u", "x"]) == {"n"}
    assert vectors.held("second", SPACE) == {"n"}
    assert found(vectors, NORTH, codex="second") == ["n"]


def test_codices_do_not_see_each_other_and_one_can_be_dropped(vectors: VectorIndex) -> None:
    vectors.add("c", SPACE, {"n": NORTH})
    vectors.add("c/ö", SPACE, {"e": EAST})
    assert vectors.codices() == {"c", "c/ö"}
    assert found(vectors, NORTH, codex="c/ö") == ["e"]
    vectors.drop("c")
    assert vectors.held("c", SPACE) == frozenset()
    assert vectors.codices() == {"c/ö"}


def test_a_branch_may_be_checked_out_again_but_what_nobody_uses_does_not_pile_up(vectors: VectorIndex) -> None:
    vectors.add("c", SPACE, {"n": NORTH, "e": EAST, "u": UP})
    assert vectors.sweep("c", SPACE, ["n", "e"]) == 0
    assert vectors.held("c", SPACE) == {"n", "e", "u"}
    assert vectors.sweep("c", SPACE, ["n"]) == 2
    assert vectors.held("c", SPACE) == {"n"}
    assert found(vectors, EAST) == ["n"]


def test_a_sweep_ends_the_codex_s_other_spaces(vectors: VectorIndex) -> None:
    old = Space("letters", 4)
    vectors.add("c", old, {"n": NORTH})
    vectors.add("d", old, {"n": NORTH})
    vectors.add("c", SPACE, {"n": NORTH})
    vectors.sweep("c", SPACE, ["n"])
    assert (vectors.count("c", old), vectors.count("d", old), vectors.count("c", SPACE)) == (0, 1, 1)


def test_many_threads_may_write(vectors: VectorIndex) -> None:
    def write(name: str) -> None:
        for number in range(4):
            vectors.add("c", SPACE, {f"{name}{number}": NORTH, f"shared{number}": EAST})

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert vectors.count("c", SPACE) == 16


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), n=st.integers(1, 30))
def test_the_index_on_disk_finds_what_comparing_all_of_them_finds(tmp_path: Path, seed: int, n: int) -> None:
    chance = random.Random(seed)
    space, oracle = Space(f"s{seed}", 8), MemoryVectors()
    made = {f"{number:03}": unit(*(chance.gauss(0, 1) for _ in range(8))) for number in range(40)}
    on_disk = VectorIndex(tmp_path)
    for index in (on_disk, oracle):
        index.add(str(seed), space, made)
    asked = unit(*(chance.gauss(0, 1) for _ in range(8)))
    here, there = (index.nearest(str(seed), space, asked, n) for index in (on_disk, oracle))
    assert [digest for digest, _ in here] == [digest for digest, _ in there]
    assert [cosine for _, cosine in here] == pytest.approx([cosine for _, cosine in there], abs=1e-5)
