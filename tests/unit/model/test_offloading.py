"""How many layers go to the GPUs, and what the governor sees of GPUs that a model is split over."""

from dataclasses import dataclass

import pytest
from support.gpus import gpu
from support.shapes import shape

from governor.footprint import KvPlan
from governor.offload import Offload
from governor.readings import SensorSnapshot
from governor.sensors import HostSensor
from governor.settings import GIB, MIB, MemorySettings
from orchestrator.machine.machine import ModelSensors
from orchestrator.model.embedding_model import EmbeddingChoice, find_embedding, on_gpu
from orchestrator.model.offloading import layers_on, room_beside, room_on
from orchestrator.settings.model import EmbeddingSettings

SHAPE = shape(trained=32_768, vocabulary=32_000)
MEMORY = MemorySettings(vram_limit="100%")
PLAIN = Offload(KvPlan())


@dataclass
class Cards:
    """A driver with these GPUs."""

    gpus: tuple

    def read(self, own_pids, now):
        return SensorSnapshot(now, self.gpus, HostSensor().read(own_pids, now))


def layers(*gpus, **chosen):
    return layers_on(gpus, SHAPE, Offload(KvPlan(), **chosen), MEMORY)


def test_a_number_in_the_settings_is_what_llama_cpp_gets():
    assert layers(gpu(0, GIB, GIB), gpu_layers=7) == 7
    assert layers(gpu_layers=7) == 7


def test_a_model_that_fits_goes_there_whole_and_one_that_does_not_in_part():
    assert layers(gpu(0, 24 * GIB, 24 * GIB)) == -1
    part = layers(gpu(0, 4 * GIB, 4 * GIB))
    assert 0 < part < 32
    assert layers(gpu(0, 600 * MIB, 600 * MIB)) == 0


def test_two_gpus_take_what_neither_takes_alone():
    small = gpu(0, 4 * GIB, 4 * GIB)
    assert 0 < layers(small) < layers(small, gpu(1, 4 * GIB, 4 * GIB)) or layers(small, gpu(1, 4 * GIB, 4 * GIB)) == -1
    assert layers(small, gpu(1, 24 * GIB, 24 * GIB), split="none", main=0) == layers(small)


def test_where_the_driver_tells_nothing_llama_cpp_is_asked_for_all():
    assert layers() == layers(gpu(0, GIB, None)) == -1


# -- what the governor sees


@pytest.fixture
def cards():
    return Cards((gpu(0, 24 * GIB, 20 * GIB), gpu(1, 8 * GIB, 5 * GIB)))


def test_gpus_that_a_model_is_split_over_are_seen_as_one_and_each_stays_known(cards):
    seen = ModelSensors(cards, PLAIN)
    (whole,) = seen.read(frozenset(), 1.0).gpus
    assert whole.free == 25 * GIB
    assert [one.name for one in seen.gpus] == ["card 0", "card 1"]


def test_shares_stay_what_they_were_before_loading_so_that_a_full_gpu_bounds_the_whole(cards):
    seen = ModelSensors(cards, PLAIN)
    seen.read(frozenset(), 1.0)
    cards.gpus = (gpu(0, 24 * GIB, 20 * GIB), gpu(1, 8 * GIB, 1 * GIB))
    (whole,) = seen.read(frozenset(), 2.0).gpus
    assert whole.free == 5 * GIB


def test_a_gpu_that_the_settings_name_is_seen_alone_and_none_where_all_runs_on_the_cpu(cards):
    assert len(ModelSensors(cards, None).read(frozenset(), 1.0).gpus) == 2
    seen = ModelSensors(cards, PLAIN)
    seen.cpu_only = True
    assert seen.read(frozenset(), 1.0).gpus == ()


# -- what is left for the model that embeds


def left(*gpus, layers=-1, **chosen):
    return room_beside(gpus, SHAPE, Offload(KvPlan(), **chosen), layers, MEMORY)


def test_the_embedding_model_gets_what_the_model_that_answers_leaves_on_its_main_gpu():
    all_of_it, half = left(gpu(0, 24 * GIB, 24 * GIB)), left(gpu(0, 24 * GIB, 24 * GIB), layers=16)
    assert 0 < all_of_it < half < 23 * GIB
    assert left(gpu(0, 24 * GIB, 24 * GIB), layers=0) == room_on(gpu(0, 24 * GIB, 24 * GIB), MEMORY)
    assert left(gpu(0, 4 * GIB, 4 * GIB)) == 0
    assert left(gpu(0, 4 * GIB, 4 * GIB), gpu(1, 24 * GIB, 24 * GIB), split="none", main=1) == all_of_it


def test_where_no_gpu_is_used_or_its_memory_is_not_told_nothing_is_left_to_be_known():
    assert left() is left(gpu(0, GIB, None)) is None


def test_an_embedding_model_goes_to_a_gpu_with_room_and_its_cost_with_it(models):
    choice = find_embedding(EmbeddingSettings(model="builtin:words"), models)
    placed = on_gpu(choice, -1, 8 * GIB, 1)
    assert (placed.file.spec.gpu_layers, placed.file.spec.main_gpu, placed.notice) == (2, 1, "")
    assert placed.file.cost.gpu > placed.file.cost.ram > 0
    for room in (None, 10 * MIB):
        stays = on_gpu(choice, -1, room, 0)
        assert (stays.file.spec.gpu_layers, stays.file.cost.gpu, stays.notice) == (0, 0, "")
    assert "embedding.gpu_layers has no effect" in on_gpu(choice, 2, None, 0).notice
    assert on_gpu(EmbeddingChoice(), 2, None, 0) == EmbeddingChoice()
