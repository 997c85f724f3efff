"""What a codex that stands says of itself: the state of its code now, whether anybody can ask."""

from dataclasses import replace

from codex.catalog.generations import Generation
from codex.trees.port import TreeState
from formatters.context import CodexView
from orchestrator.codices.state import CodexState
from orchestrator.prompt.coverage import Coverage, CoverageDecision, CoverageSizes, FloorRoom

MAIN, KIWI, PLUM = (TreeState(name, "1a2b3c4") for name in ("main", "kiwi", "plum"))
FIRST = CodexState(
    name="demo",
    roots=("/src/demo",),
    generation=Generation("demo", 1, MAIN, ()),
    view=CodexView(name="demo"),
    sizes=CoverageSizes(1_000, None, None),
    decision=CoverageDecision(Coverage.FULL, 1, 1_000, 3_000, "it fits"),
    tokens=1_000,
)


def test_the_state_that_is_told_is_that_of_the_disk_as_seen_last() -> None:
    assert FIRST.in_answer().branch == "main"
    seen = replace(FIRST, tree=KIWI)
    assert (seen.in_answer().branch, seen.generation_now().label()) == ("kiwi", "kiwi@1a2b3c4")


def test_the_same_generation_in_another_tier_keeps_what_was_seen_of_the_disk() -> None:
    moved = FIRST.behind(replace(FIRST, tree=KIWI))
    assert (moved.in_answer().branch, moved.sizes) == ("kiwi", FIRST.sizes)


def test_a_load_that_told_the_state_anew_has_seen_the_disk_itself() -> None:
    loaded = replace(FIRST, generation=replace(FIRST.generation, state=PLUM))
    assert loaded.behind(replace(FIRST, tree=KIWI)).in_answer().branch == "plum"
    newer = replace(FIRST, generation=replace(FIRST.generation, number=2))
    assert newer.behind(replace(FIRST, tree=KIWI)) == newer


def test_a_log_leaves_no_room_for_a_conversation_when_it_passes_what_a_floor_may_take() -> None:
    room = FloorRoom(window=100_000, identity=100, kv_tokens=1_500)
    assert replace(FIRST, amended=500).tokens_now <= FIRST.most_tokens(room)
    assert replace(FIRST, amended=501).tokens_now > FIRST.most_tokens(room)


def test_what_keeps_it_out_of_its_floor_is_told_unless_nothing_does_or_somebody_wished_it() -> None:
    on_map = CoverageDecision(Coverage.MAP, 3, 500, 500, "map, because 1,000 tokens do not fit", "more KV would do")
    assert replace(FIRST, decision=on_map).limited == "demo: map, because 1,000 tokens do not fit; more KV would do"
    assert (FIRST.limited, replace(FIRST, decision=on_map, forced=Coverage.MAP).limited) == ("", "")
