"""`GET /metrics`, read by Prometheus' own parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from support.small_reports import COUNTED
from support.wire_shapes import filled

from orchestrator.engine.snapshot import STEP_BOUNDS_S, EngineSnapshot, StepTimes
from orchestrator.reports.cache import cache_report
from orchestrator.reports.exposition import Family, Histogram, Tally, text
from orchestrator.reports.metrics import FAMILIES, MEMORY, metrics
from orchestrator.reports.turns import TurnMeter
from orchestrator.wire.memories import MemoryStats
from orchestrator.wire.status import StatusReply

SIZES = Family("lorekeep_size", "histogram", "sizes", bounds=(0.5, 1.0, 2.5))


def samples(exposed):
    """By name and labels; the parser refuses what is not well-formed."""
    found = [
        ((sample.name, *sorted(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(exposed)
        for sample in family.samples
    ]
    assert len(dict(found)) == len(found), "a series comes twice"
    return dict(found)


def exposed(**figures):
    status = filled(
        StatusReply,
        engine={"restarts": 1, "kv_bytes": 4096, "answering": 1, "prefills": 2, **figures.pop("engine", {})},
        governor={"level": "high", "pressure": 0.9},
        queue={"running": 3, "waiting": 4},
    )
    cache = cache_report(EngineSnapshot(1, counters=COUNTED), on_gpu=True, ranges=True)
    memory = MemoryStats(
        days=30,
        figures=[
            {"name": name, "says": "", "value": 0.5, "measured": 9, "least": None, "most": None, "reached": None}
            for name in MEMORY
        ],
    )
    return metrics(status, cache, figures.get("memory", memory), TurnMeter().metrics(), ready=True)


def steps(*counts):
    return {"steps": {"bounds": STEP_BOUNDS_S, "counts": counts, "seconds": 1.5}}


def test_every_metric_is_there_once_with_its_type_and_what_it_counts():
    lines = exposed(engine=steps(*(1 for _ in range(len(STEP_BOUNDS_S) + 1)))).splitlines()
    kinds = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}
    says = {line.split()[2]: line.split(" ", 3)[3] for line in lines if line.startswith("# HELP")}
    assert kinds == {family.name: family.kind for family in FAMILIES}
    assert says == {family.name: family.says for family in FAMILIES}


def test_figures_of_now_and_of_the_caches_are_the_reports():
    found = samples(exposed())
    assert [found[f"lorekeep_{name}_jobs",] for name in ("answering", "prefilling", "waiting")] == [1, 2, 4]
    assert (found["lorekeep_ready",], found["lorekeep_pressure_level",]) == (1, 2)
    assert found["lorekeep_cached_tokens_total",] == 900


def test_what_was_not_measured_has_no_line():
    assert "lorekeep_memory" not in exposed(memory=None)
    assert "lorekeep_step_seconds" not in exposed()


@given(st.lists(st.floats(0, 10)))
def test_a_histogram_counts_every_value_in_each_bucket_whose_bound_it_does_not_exceed(values):
    histogram = Histogram(SIZES)
    for value in values:
        histogram.add(value)
    found = samples(text([histogram.metric()]))
    bounds = {"0.5": 0.5, "1.0": 1.0, "2.5": 2.5, "+Inf": float("inf")}
    for name, bound in bounds.items():
        assert found["lorekeep_size_bucket", ("le", name)] == sum(value <= bound for value in values)
    assert found["lorekeep_size_count",] == len(values)
    assert found["lorekeep_size_sum",] == pytest.approx(sum(values))


@given(st.lists(st.sampled_from([*STEP_BOUNDS_S, 0.0, 0.003, 99.0]), max_size=20))
def test_the_engine_counts_its_steps_in_the_buckets_that_are_shown(seconds):
    times = StepTimes()
    for one in seconds:
        times = times.and_one(one)
    step = {"bounds": STEP_BOUNDS_S, "counts": times.counts, "seconds": times.seconds}
    found = samples(exposed(engine={"steps": step}))
    for bound in STEP_BOUNDS_S:
        assert found["lorekeep_step_seconds_bucket", ("le", str(bound))] == sum(one <= bound for one in seconds)
    assert found["lorekeep_step_seconds_count",] == len(seconds)


def test_a_label_has_the_values_that_its_family_declares_and_no_others():
    family = Family("lorekeep_things_total", "counter", "things", {"kind": ("a", "b"), "tier": ("x",)})
    tally = Tally(family)
    tally.add("b", "x", by=3)
    assert samples(text([tally.metric()])) == {
        ("lorekeep_things_total", ("kind", "a"), ("tier", "x")): 0,
        ("lorekeep_things_total", ("kind", "b"), ("tier", "x")): 3,
    }
    with pytest.raises(KeyError):
        tally.add("what a user wrote", "x")


def test_there_are_few_series_however_many_users_and_codices():
    lines = [line for line in exposed(engine=steps(*(1 for _ in range(14)))).splitlines() if not line.startswith("#")]
    assert len(lines) < 300
