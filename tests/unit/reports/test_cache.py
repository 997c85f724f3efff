"""What the caches did, told from the engine's counters."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.messages import InferenceJob, Reuse, Tier
from orchestrator.engine.scheduler.ticket import Counters, Ticket
from orchestrator.engine.snapshot import EngineSnapshot
from orchestrator.reports.cache import FRESH, WHOLE, cache_report


def report(counted, **options):
    return cache_report(
        EngineSnapshot(1, kv_bytes=4096, counters=counted), **{"on_gpu": False, "ranges": True} | options
    )


def told(counted, **options):
    return report(counted, **options).model_dump()


@given(st.lists(st.tuples(st.integers(1, 500), st.sampled_from([Tier.VRAM, Tier.DISK, Tier.COMPUTED]))))
def test_every_token_of_a_prompt_is_counted_once_in_the_tier_it_came_from(parts):
    counters, at, reuse = Counters(), 0, []
    for size, tier in parts:
        reuse.append(Reuse(at, at + size, tier))
        at += size
    naive = {tier: sum(size for size, of in parts if of is tier) for tier in Tier}
    ticket = Ticket(InferenceJob(1, "", b"", 1, 1), array("I", range(at)), 0, 1, 0.0)
    ticket.reuse, ticket.computed = tuple(reuse), naive[Tier.COMPUTED]
    counters.answered(ticket)
    found = told(vars(counters))
    assert [found["tiers"][name]["tokens"] for name in ("vram", "disk")] == [naive[Tier.VRAM], naive[Tier.DISK]]
    assert (found["tokens"]["prompt"], found["tokens"]["computed"]) == (at, naive[Tier.COMPUTED])


def test_saved_time_is_what_the_cached_tokens_would_have_cost_less_what_bringing_them_back_did():
    counted = {"cached_tokens": 900, "prompt_tokens": 1000, "ms_per_token": 2.5}
    assert told(counted)["saved_ms"] == 2250
    assert told(counted | {"restored_ms": 250.0})["saved_ms"] == 2000
    assert told(counted | {"restored_ms": 9000.0})["saved_ms"] == 0


def test_before_the_first_question_there_is_no_rate_rather_than_a_zero():
    empty = told({})
    assert (empty["hit_rate"], empty["tiers"]["disk"]["hit_rate"], empty["drafts"]["rate"]) == (None, None, None)
    assert empty["note"] == FRESH


def test_while_the_model_is_away_it_is_told_that_the_figures_begin_anew():
    assert told({}, away="paused: a backup")["note"].startswith("no model is loaded (paused: a backup)")
    assert told({"prompt_tokens": 5})["note"] == ""


def test_without_a_gpu_the_cells_lie_in_ram_and_with_one_in_vram():
    assert told({})["tiers"]["vram"]["memory"] == "RAM"
    assert told({}, on_gpu=True)["tiers"]["vram"]["memory"] == "VRAM"


def test_a_model_whose_memory_cannot_be_cut_is_named():
    assert told({"prompt_tokens": 1}, ranges=False)["note"] == WHOLE
