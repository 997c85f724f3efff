"""A model with two sets of rope factors: whatever pool computed its cells, they are those of the set that was settled.

The oracle is the same model with that one set alone, which llama.cpp uses in contexts of any size.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import odd_models
from support.driven import Driven, View

from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.llama.model_files import Factors, factors, fingerprint, header_of
from orchestrator.engine.messages import Grant
from orchestrator.engine.model import EngineSpec

FLOOR = [random.Random(3).randrange(4000) for _ in range(600)]
TAIL, MOST = [1, 2, 3], 4
SMALL, LARGE = 1024, 8192  # cells: within the original context, and beyond

Loading = Callable[..., LlamaBackend]


@pytest.fixture
def loading(tmp_path: Path) -> Iterator[Loading]:
    """Loads the model (or the one with a single set), and frees all of them in the end."""
    loaded: list[LlamaBackend] = []

    def load(context: int = 0, only: str = "") -> LlamaBackend:
        path = odd_models.long_rope(tmp_path / f"{only or 'both'}.gguf", only)
        loaded.append(LlamaBackend(spec_of(path, context)))
        return loaded[-1]

    yield load
    for backend in loaded:
        backend.close()


def spec_of(path: Path, context: int = 0) -> EngineSpec:
    return EngineSpec(str(path), threads=1, batch=128, gpu_layers=0, context=context)


def factors_of(spec: EngineSpec) -> Factors | None:
    return factors(spec, header_of(spec))


def driven_in(backend: LlamaBackend, cells: int, folder: Path | None = None) -> Driven:
    driven = Driven(backend, cells=cells, window=cells, folder=folder, batch=128)
    driven.floor("code", FLOOR)
    return driven


def alone(backend: LlamaBackend) -> View:
    """The answer computed at once, in a pool of its own size."""
    return Driven(backend).recomputed([*FLOOR, *TAIL], MOST)


settled = pytest.mark.parametrize(("context", "name"), [(0, "long"), (odd_models.ORIGINAL, "short")])


@settled
@pytest.mark.parametrize("cells", [SMALL, LARGE])
def test_an_answer_is_that_of_the_settled_factors_in_pools_of_any_size(
    loading: Loading, context: int, name: str, cells: int
) -> None:
    driven = driven_in(loading(context), cells)
    view = driven.views(1, "code", TAIL, MOST)
    driven.close()
    assert driven.near(view, alone(loading(only=name)))
    assert not driven.near(view, alone(loading(only="short" if name == "long" else "long")))


@settled
@pytest.mark.parametrize(("first", "then"), [(SMALL, LARGE), (LARGE, SMALL)])
def test_what_a_pool_of_another_size_kept_is_as_if_it_had_been_computed(
    loading: Loading, tmp_path: Path, context: int, name: str, first: int, then: int
) -> None:
    backend = loading(context)
    former = driven_in(backend, first, tmp_path / "kept")
    former.views(1, "code", TAIL, MOST)
    former.close()
    driven = driven_in(backend, then, tmp_path / "kept")
    view = driven.views(2, "code", TAIL, MOST)
    assert driven.ends[2].cached >= len(FLOOR)
    driven.close()
    assert driven.near(view, alone(loading(only=name)))


def test_a_pool_that_grows_over_the_original_context_goes_on_as_if_all_had_been_computed_there(
    loading: Loading,
) -> None:
    driven, tail = driven_in(loading(), SMALL), [7] * 900
    driven.views(1, "code", TAIL, 1)
    assert driven.pool("code").memory.cells <= odd_models.ORIGINAL
    driven.loop.handle(Grant(2, LARGE, LARGE))
    view = driven.views(2, "code", tail, MOST)
    assert driven.pool("code").memory.cells > odd_models.ORIGINAL
    assert driven.ends[2].cached >= len(FLOOR)
    driven.close()
    assert driven.near(view, Driven(loading(only="long")).recomputed([*FLOOR, *tail], MOST))


def test_engines_that_settled_otherwise_share_no_checkpoint(tmp_path: Path) -> None:
    path = odd_models.long_rope(tmp_path / "model.gguf")
    names = {context: fingerprint(spec_of(path, context)) for context in (0, 4096, 1025, 1024, 512)}
    assert names[0] == names[4096] == names[1025]
    assert names[1024] == names[512] != names[0]


def test_a_model_with_one_set_has_nothing_to_settle(tmp_path: Path) -> None:
    path = odd_models.long_rope(tmp_path / "model.gguf", only="long")
    assert factors_of(spec_of(path)) is None
    assert fingerprint(spec_of(path, 512)) == fingerprint(spec_of(path))


def test_a_file_that_is_no_model_has_nothing_to_settle(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("no model")
    assert factors_of(spec_of(tmp_path / "text.gguf")) is None
    assert factors_of(spec_of(tmp_path / "nowhere.gguf")) is None
