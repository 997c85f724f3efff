"""How many layers go to the GPUs, and what the governor sees of GPUs that a model is split over."""

from dataclasses import dataclass

import pytest
from support.gpus import gpu

from governor.footprint import KvPlan
from governor.offload import Offload
from governor.readings import Snapshot
from governor.sensors.host import HostSensor
from governor.settings import GIB, MIB, MemorySettings
from governor.shape import Layer, ModelShape
from orchestrator.machine import Seen
from orchestrator.offloading import layers_on

SHAPE = ModelShape(
    architecture="llama",
    name="an 8B",
    trained=32_768,
    embedding=4_096,
    heads=32,
    vocabulary=32_000,
    feed_forward=14_336,
    layers=tuple(Layer(120 * MIB, 1_024, 1_024, 128, 128) for _ in range(32)),
    window=0,
    compressed=False,
    input=128 * MIB,
    output=128 * MIB,
    tied=False,
    by_type={"q4_k": 4 * GIB},
    unpredictable=None,
)
MEMORY = MemorySettings(vram_limit="100%")
PLAIN = Offload(KvPlan())


@dataclass
class Cards:
    """A driver with these GPUs."""

    gpus: tuple

    def read(self, own_pids, now):
        return Snapshot(now, self.gpus, HostSensor().read(own_pids, now))


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
    seen = Seen(cards, PLAIN)
    (whole,) = seen.read(frozenset(), 1.0).gpus
    assert whole.free.value == 25 * GIB
    assert [one.name for one in seen.gpus] == ["card 0", "card 1"]


def test_shares_stay_what_they_were_before_loading_so_that_a_full_gpu_bounds_the_whole(cards):
    seen = Seen(cards, PLAIN)
    seen.read(frozenset(), 1.0)
    cards.gpus = (gpu(0, 24 * GIB, 20 * GIB), gpu(1, 8 * GIB, 1 * GIB))
    (whole,) = seen.read(frozenset(), 2.0).gpus
    assert whole.free.value == 5 * GIB


def test_a_gpu_that_the_settings_name_is_seen_alone_and_none_where_all_runs_on_the_cpu(cards):
    assert len(Seen(cards, None).read(frozenset(), 1.0).gpus) == 2
    seen = Seen(cards, PLAIN)
    seen.cpu_only = True
    assert seen.read(frozenset(), 1.0).gpus == ()
