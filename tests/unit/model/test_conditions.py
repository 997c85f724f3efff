"""How a model would be loaded here: a built-in one to try out, and a cache of sliding layers that stays as it was."""

from dataclasses import replace
from pathlib import Path

import pytest
from published_models import GEMMA_12B

from governor.footprint import KvPlan
from governor.offload import ENOUGH_WINDOW, Offload
from governor.readings import MemoryReading
from governor.settings import GIB, MemorySettings
from orchestrator.model.conditions import (
    TRIAL_WINDOW,
    WINDOW_CACHES,
    LoadingConditions,
    remember_window_cache,
    window_caches,
)

FILE = Path("/models/gemma.gguf")
AUTO = Offload(KvPlan(sequences=32), on_gpu=True)


def conditions(gigabytes: float = 24, offload: Offload = AUTO, **others: object) -> LoadingConditions:
    free = int(gigabytes * GIB)
    return LoadingConditions(offload, MemoryReading("VRAM", free, free, 0), MemorySettings(), host_free=GIB, **others)  # type: ignore[arg-type]


def cache(here: LoadingConditions) -> str:
    return "small" if here.for_model(FILE, GEMMA_12B).offload.plan.small_windows else "full"


@pytest.mark.parametrize(("name", "context"), [("quoter-0123456789ab.gguf", TRIAL_WINDOW), ("gemma.gguf", None)])
def test_a_built_in_model_has_a_short_window_and_no_other_model_has_it(name: str, context: int | None) -> None:
    assert conditions().for_model(Path("/models") / name, GEMMA_12B).offload.context == context
    set_to = conditions(offload=replace(AUTO, context=4096))
    assert set_to.for_model(Path("/models") / name, GEMMA_12B).offload.context == 4096


def test_the_model_that_runs_is_described_as_it_was_loaded() -> None:
    loaded = replace(AUTO, context=777)
    here = conditions(loaded=loaded)
    assert here.for_model(FILE, GEMMA_12B, loaded=True).offload == loaded
    assert here.for_model(FILE, GEMMA_12B).offload.context is None


def test_with_a_little_less_memory_than_at_the_last_start_a_model_has_the_cache_that_it_had() -> None:
    sizes = (gigabytes / 8 for gigabytes in range(24 * 8, 0, -1))
    scarce = next(one for one in map(conditions, sizes) if one.window(GEMMA_12B, full_of(one)) < ENOUGH_WINDOW)
    assert cache(scarce) == "small"
    assert cache(replace(scarce, window_caches={str(FILE): "full"})) == "full"
    assert cache(replace(scarce, window_caches={"/models/another.gguf": "full"})) == "small"
    assert cache(replace(conditions(12), window_caches={str(FILE): "full"})) == "small", "far too short"


def full_of(here: LoadingConditions) -> KvPlan:
    return here.offload.for_shape(GEMMA_12B).plan


def test_what_was_chosen_is_found_at_the_next_start(tmp_path: Path) -> None:
    model = tmp_path / "gemma.gguf"
    model.touch()
    chosen = conditions(12).for_model(model, GEMMA_12B).offload
    remember_window_cache(tmp_path / "kv", model, GEMMA_12B, chosen)
    assert window_caches(tmp_path / "kv") == {str(model): "small"}
    model.rename(another := tmp_path / "another.gguf")
    remember_window_cache(tmp_path / "kv", another, GEMMA_12B, conditions().for_model(another, GEMMA_12B).offload)
    assert window_caches(tmp_path / "kv") == {str(another): "full"}, "what is gone is forgotten"


def test_a_cache_that_is_set_is_not_remembered(tmp_path: Path) -> None:
    chosen = conditions(offload=replace(AUTO, windows="small")).for_model(FILE, GEMMA_12B).offload
    remember_window_cache(tmp_path, FILE, GEMMA_12B, chosen)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"/a": "large", "/b": ["small"]}'])
def test_a_damaged_file_is_one_that_says_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / WINDOW_CACHES).write_bytes(content)
    assert window_caches(tmp_path) == {}


@pytest.mark.parametrize("folder", ["kv", "kv/deeper"])
def test_a_folder_that_cannot_be_written_to_is_no_reason_not_to_start(folder: str, tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("a file")
    remember_window_cache(tmp_path / folder, FILE, GEMMA_12B, conditions().for_model(FILE, GEMMA_12B).offload)
    assert window_caches(tmp_path / folder) == {}
