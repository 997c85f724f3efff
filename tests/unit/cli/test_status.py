"""`lore status`: one line a codex, at any width, and what is wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from orchestrator.cli.status import bar, codex_lines, readiness, short_page

COSTS = {"ms_per_token_empty": 2.0, "ms_per_token_cell": 0.0001, "ms_per_answer_empty": 20.0}
POOL = {"name": "lorekeep@1a2b3c4d5e6f/demo", "evictable": 8_000, "leased": 100}
DEMO = {"name": "demo", "tier": "full", "floor_tokens": 8_000, "fresh": "watched"}


def now(*codices, pools=(POOL,), costs=COSTS, **more):
    engine = {"state": "ready", "pools": pools, "cache": costs}
    return {
        "version": "0.1.0",
        "model": {"name": "qwen.gguf", "window": 32_768},
        "engine": engine,
        "queue": {"running": 0, "waiting": 0},
        "governor": {"level": "calm"},
        "codices": codices,
        "sessions": 2,
        **more,
    }


def test_a_codex_whose_prefix_is_there_says_when_it_answers():
    share, words = readiness(DEMO, now(DEMO))
    assert (share, words) == (1.0, "ready, first token in about 197 ms")
    for unknown in ({}, {**COSTS, "costs_known": 0.0}):
        assert readiness(DEMO, now(DEMO, costs=unknown)) == (1.0, "ready")


def test_one_that_is_computed_says_how_long_that_takes():
    half = {**DEMO, "prefill": {"done": 4_000, "total": 8_000, "left_s": 330.0}}
    assert readiness(half, now(half)) == (0.5, "6 min left")
    assert readiness({**half, "prefill": {"done": 0, "total": 8_000, "left_s": None}}, now()) == (0, "being computed")


def test_one_that_is_loaded_for_the_first_time_says_how_far_that_is():
    load = {"phase": "index", "done": 20_213, "total": 50_000, "rate": 67.8, "eta_s": 442.8, "ended": False}
    new = {"name": "tree", "fresh": "being loaded", "load": load}
    assert readiness(new, now(new)) == (0, "indexing files 20,213/50,000 · 68/s · 7 min 23 s left")
    begun = {**new, "load": {**load, "phase": None, "done": 0, "total": 0, "rate": 0.0, "eta_s": None}}
    assert readiness(begun, now(begun)) == (0, "being loaded")
    stopped = {**new, "fresh": "not loaded to the end", "load": {**load, "ended": True}}
    assert readiness(stopped, now(stopped)) == (0, "not loaded to the end")


def test_one_that_is_not_in_the_memory_says_what_the_next_question_costs():
    share, words = readiness(DEMO, now(DEMO, pools=()))
    assert share == 0
    assert words == "the next question restores it from the disk, or computes it, in 19 s at most"


def test_one_whose_model_is_away_says_why():
    assert readiness(DEMO, now(paused={"cause": "pause"}))[1] == "paused"
    assert readiness(DEMO, now(paused={"cause": "idle"}))[1] == "asleep: the next question wakes the model"


def test_one_that_was_never_loaded_to_its_end_has_an_empty_bar_and_the_reason():
    codex = {"name": "demo", "tier": None, "fresh": "its load ended early"}
    assert codex_lines(codex, now(codex), None, full=False) == "demo  ----------  its load ended early"


def test_what_is_wrong_stands_below_and_what_is_as_always_does_not():
    assert codex_lines(DEMO, now(DEMO, costs={}), None, full=True) == "demo  ██████████  ready"
    behind = {**DEMO, "fresh": "not watched", "fresh_notice": "not followed since 12:00"}
    assert codex_lines(behind, now(behind, costs={}), None, full=True).splitlines() == [
        "demo  ██████████  ready, not watched",
        "  not followed since 12:00",
    ]


def test_at_twenty_columns_no_line_of_a_codex_is_longer():
    lines = codex_lines(DEMO, now(DEMO), 20, full=True).splitlines()
    assert lines[0] == "demo  █████"
    assert max(map(len, lines)) <= 20
    assert " ".join(line.strip() for line in lines[1:]) == "ready, first token in about 197 ms"


@given(some.floats(0, 1), some.integers(2, 40))
def test_a_bar_is_full_when_all_is_there_and_empty_when_nothing_is(share, width):
    drawn = bar(share, width, full=False)
    assert len(drawn) == width
    assert (drawn == "#" * width) == (share == 1)
    assert (drawn == "-" * width) == (share == 0)


def test_the_short_page_has_no_cells_and_the_long_one_has_them(lore, lorekeep):
    short, whole = lore("status"), lore("status", "-v")
    assert (short.returncode, whole.returncode) == (0, 0)
    assert "evictable" not in short.stdout
    assert "reserved" in whole.stdout
    assert "demo  " in short.stdout


def test_the_json_is_the_same_with_and_without_details(lore, lorekeep):
    short, whole = (json.loads(lore("status", *more, "--json").stdout) for more in ((), ("-v",)))
    assert short.keys() == whole.keys()


@pytest.mark.parametrize("fault", [{"state": "backoff", "reason": "it ended"}, {"restarts": 2}])
def test_an_engine_that_is_well_is_not_mentioned_and_one_that_is_not_is(fault):
    assert "engine" not in short_page(now(DEMO))
    ill = now(DEMO)
    assert "engine" in short_page({**ill, "engine": {**ill["engine"], **fault}})
