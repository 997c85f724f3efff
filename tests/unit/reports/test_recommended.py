"""Which published models are recommended on which machine."""

import re

import pytest

from governor.footprint import KvPlan
from governor.offload import Offload
from governor.readings import MemoryReading
from governor.settings import GIB, MemorySettings
from orchestrator.cli.download import located
from orchestrator.model.conditions import Gpu, LoadingConditions
from orchestrator.reports.recommended import MOST, WORTHWHILE, machine, published, recommended

SMALLEST = min(published(), key=lambda one: one.bytes)


def on_card(gigabytes: float) -> LoadingConditions:
    free = int(gigabytes * GIB) - GIB // 2
    memory, offload = MemoryReading("VRAM", int(gigabytes * GIB), free, 0), Offload(KvPlan(sequences=32), on_gpu=True)
    return LoadingConditions(
        offload, memory, MemorySettings(), limit=int(0.9 * free), host_free=64 * GIB, gpus=(Gpu("card A", free),)
    )


def on_cpu(gigabytes: float) -> LoadingConditions:
    free = int(gigabytes * GIB)
    memory = MemoryReading("RAM", free, free, 0)
    return LoadingConditions(Offload(KvPlan(sequences=4)), memory, MemorySettings(), limit=int(0.9 * free))


def names(here: LoadingConditions) -> list[str]:
    return [one.name for one in recommended(published(), here)]


def test_every_row_names_one_file_on_a_hub_and_a_sum_that_is_one() -> None:
    for one in published():
        assert located(one.source).name == one.file
        assert re.fullmatch(r"[0-9a-f]{64}|", one.sha256)
    assert len({one.name for one in published()}) == len(published())


def test_the_weights_of_a_shape_are_those_of_the_file() -> None:
    for one in published():
        assert one.bytes - one.shape.weights < one.layers, one.name


@pytest.mark.parametrize("here", [on_card(8), on_card(16), on_card(24), on_card(80), on_cpu(16), on_cpu(64)])
def test_what_is_recommended_fits_whole_and_the_first_has_room_for_a_codebase(here: LoadingConditions) -> None:
    found = recommended(published(), here)
    assert 1 < len(found) <= MOST
    assert found[0].window >= WORTHWHILE
    assert all(one.words.startswith("yes") and "layers on the GPU" not in one.words for one in found)


def test_a_larger_card_has_a_model_that_is_as_large_at_its_head() -> None:
    order = [one.name for one in published()]
    heads = [order.index(names(on_card(size))[0]) for size in (6, 8, 12, 16, 24, 32, 48, 80)]
    assert heads == sorted(heads)


def test_on_a_cpu_no_model_that_reads_a_codebase_for_hours() -> None:
    slow = {one.name for one in published() if one.active > 5}
    assert slow
    assert not slow & set(names(on_cpu(256)))
    assert names(on_cpu(8))[0] == SMALLEST.name


def test_a_machine_that_holds_none_of_them_is_offered_none() -> None:
    assert names(on_cpu(1)) == []


def test_the_machine_is_told_in_its_memory() -> None:
    assert machine(on_card(24)) == "card A: 23.5 GiB of 24.0 GiB of VRAM free"
    assert machine(on_cpu(16)) == "16.0 GiB of 16.0 GiB of RAM free, no GPU that llama.cpp can use"
