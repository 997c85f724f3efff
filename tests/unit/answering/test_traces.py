"""Turns kept for a time: each text once, the oldest gone first, one user's apart from another's."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.small_disk import small_disk
from support.traced import check, composed, traced

from orchestrator.answering.traces import TracedTurn, TraceKeeper, TraceStore
from orchestrator.errors import InvalidRequest, LoreError, NotFound
from orchestrator.karma.recall import ShownEntry
from orchestrator.karma.records import Kind
from orchestrator.machine.clock import SteadyClock
from orchestrator.relevance.configuration import read_rules
from orchestrator.relevance.gate import catalogue, relevance
from orchestrator.relevance.ledger import RuleFigures
from orchestrator.relevance.signals import Turn, signals_of

DAY = 86_400.0
FLOOR = "".join(f"def function_{n}(): return {n * n * 7919 % 10007}\n" for n in range(20_000))


@pytest.fixture
def now() -> list[float]:
    return [1_000_000.0]


@pytest.fixture
def opened(tmp_path: Path, now: list[float]) -> Iterator[Callable[..., TraceStore]]:
    made = []

    def open_(days: float = 30, most: int = 10**9) -> TraceStore:
        made.append(TraceStore(tmp_path / "traces.sqlite3", days, most, lambda: now[0]))
        return made[-1]

    yield open_
    for one in made:
        one.close()


def names(store: TraceStore, uid: int = 1000) -> list[str]:
    return [one.id for one in store.all_of(uid, 100)]


def test_pages_of_a_list_are_all_of_it_once_also_while_turns_are_added_and_of_nobody_else(
    opened: Callable[..., TraceStore],
) -> None:
    store = opened()
    for number in range(5):
        store.keep(traced(f"turn {number}"))
        store.keep(traced(f"foreign {number}", uid=1001))
    first = [one.id for one in store.all_of(1000, 2)]
    store.keep(traced("new"))
    second, third = ([one.id for one in store.all_of(1000, 2, before)] for before in (first[-1], "turn 1"))
    assert [first, second, third] == [["turn 4", "turn 3"], ["turn 2", "turn 1"], ["turn 0"]]
    assert store.all_of(1000, 2, "turn 0") == []
    with pytest.raises(NotFound):
        store.all_of(1000, 2, "foreign 1")


def test_a_row_says_how_much_of_its_prompt_was_cached_and_which_strategy_was_chosen(
    opened: Callable[..., TraceStore],
) -> None:
    store = opened()
    turn = traced("one")
    store.keep(turn)
    (row,) = store.all_of(1000, 1)
    said = turn.lore
    assert (row.tokens, row.cached, row.strategy) == (said.prompt.tokens, said.prompt.cached, said.strategy.name)


def test_a_floor_is_written_once_however_many_turns_have_it(opened: Callable[..., TraceStore]) -> None:
    store = opened()
    store.keep(traced("first", composed(code=FLOOR)))
    first = store.held
    store.keep(traced("second", composed("And x?", ["Where is main?", "In a.py."], code=FLOOR)))
    assert first > 100_000
    assert store.held - first < 3_000
    check(store)


def test_a_trace_is_found_by_the_beginning_of_its_id_and_the_last_by_its_name(
    opened: Callable[..., TraceStore],
) -> None:
    store = opened()
    store.keep(traced("abc1"))
    store.keep(traced("abd2"))
    assert [store.get(1000, name).id for name in ("abc", "abd2", "last")] == ["abc1", "abd2", "abd2"]
    with pytest.raises(InvalidRequest, match="several traces begin with ab"):
        store.get(1000, "ab")
    for unknown in ("", "x", "abc12", "%"):
        with pytest.raises(NotFound):
            store.get(1000, unknown)


def test_another_users_trace_is_not_found(opened: Callable[..., TraceStore]) -> None:
    store = opened()
    store.keep(traced("theirs", uid=1001))
    store.keep(traced("mine"))
    assert (names(store), names(store, 1001), names(store, 1002)) == (["mine"], ["theirs"], [])
    for ask in (
        lambda: store.get(1000, "theirs"),
        lambda: store.difference(1000, "mine", "theirs"),
        lambda: store.vote(1000, "theirs", "up", ""),
    ):
        with pytest.raises(NotFound):
            ask()
    assert store.get(1001, "last").vote is None


def test_traces_go_after_their_days(opened: Callable[..., TraceStore], now: list[float]) -> None:
    store = opened(days=30)
    store.keep(traced("old"))
    now[0] += 20 * DAY
    store.keep(traced("young"))
    now[0] += 11 * DAY
    store.keep(traced("new"))
    assert names(store) == ["new", "young"]
    check(store)


def test_of_too_many_bytes_the_oldest_go_first_and_those_voted_up_last(opened: Callable[..., TraceStore]) -> None:
    store = opened()
    for number in range(6):
        store.keep(traced(f"trace{number}", composed(f"Question {number}?", code=FLOOR[: 40_000 + number])))
    store.vote(1000, "trace0", "up", "right")
    store.vote(1000, "trace5", "down", "wrong")
    store.most = store.held // 2
    store.prune()
    assert names(store) == ["trace5", "trace0"]
    assert store.held <= store.most
    check(store)


@pytest.mark.parametrize("by", [400 * DAY, -400 * DAY])
def test_a_wall_clock_that_is_set_deletes_no_trace_and_what_is_too_old_goes(tmp_path: Path, by: float) -> None:
    passed, wall = [0.0], [1.7e9]
    clock = SteadyClock(lambda: wall[0] + passed[0], lambda: passed[0])
    store = TraceStore(tmp_path / "traces.sqlite3", 30, 10**9, lambda: wall[0] + passed[0], clock.oldest)
    store.keep(traced("before"))
    wall[0] += by
    store.keep(traced("behind"))
    passed[0] += 29 * DAY
    store.prune()
    assert names(store) == ["behind", "before"]
    wall[0] -= by
    passed[0] += 2 * DAY
    store.prune()
    assert "before" not in names(store)
    store.close()


def test_a_full_disk_loses_traces_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with small_disk(tmp_path / "small", "600k") as disk:
        store = TraceStore(disk / "traces.sqlite3", 30, 10**9)
        keeper = TraceKeeper(store)
        (disk / "filling").write_bytes(bytes(400_000))
        with pytest.raises(LoreError, match="no room left"):
            store.keep(traced("lost", composed(code=FLOOR)))
        with caplog.at_level(logging.WARNING):
            for number in range(3):
                keeper.later(traced(f"lost{number}", composed(code=FLOOR)))
            keeper._thread.submit(int).result()
        assert caplog.text.count("traces of answers are not kept") == 1
        assert names(store) == []
        (disk / "filling").unlink()
        keeper.later(traced("kept"))
        keeper._thread.submit(int).result()
        assert names(store) == ["kept"]
        keeper.close()


def test_what_was_handed_over_is_kept_before_the_keeper_closes(opened: Callable[..., TraceStore]) -> None:
    keeper = TraceKeeper(opened())
    for number in range(5):
        keeper.later(traced(f"trace{number}"))
    keeper.close()
    assert len(names(opened())) == 5


def test_a_difference_names_what_a_conversation_added(opened: Callable[..., TraceStore]) -> None:
    store = opened()
    store.keep(traced("a", composed("One?")))
    store.keep(traced("b", composed("Two?", ["One?", "Yes."])))
    store.keep(traced("c", composed("Two?", ["One?", "Yes."], code="x = 2\n")))
    told = {block.block: block for block in store.difference(1000, "a", "b").blocks}
    assert [name for name, block in told.items() if not block.same] == ["state", "query"]
    found = store.difference(1000, "b", "c")
    assert found.broke_at is not None
    assert (found.broke_at.block, found.broke_at.item) == ("codex", "a.py")
    assert [block.changed for block in found.blocks if not block.same] == [("a.py",)]


REDIS = ShownEntry("a1", Kind.FACT, "The cache runs on Redis.", 1.0)
THANKS = relevance(signals_of(Turn("thanks", 1)), read_rules(catalogue()), catalogue())


def thanks(id: str, session: str | None = "mine", said: str = "You are welcome.", uid: int = 1000) -> TracedTurn:  # noqa: A002
    """A turn whose mask kept facts out."""
    turn = traced(id, uid=uid, relevance=THANKS)
    lore = turn.lore.model_copy(update={"session": session})
    return replace(turn, question="thanks", answer=said, said=said, lore=lore)


def asked(id: str, question: str, **more: object) -> TracedTurn:  # noqa: A002
    return replace(thanks(id, **more), question=question)  # type: ignore[arg-type]


def regrets(store: TraceStore, id: str, uid: int = 1000) -> dict[str, str]:  # noqa: A002
    found = store.get(uid, id).relevance
    assert found is not None
    return {one.node: one.regretted for one in found.fired if one.regretted}


def test_a_trace_keeps_what_was_left_out_by_which_rule_and_what_it_would_have_brought(
    opened: Callable[..., TraceStore],
) -> None:
    store = opened()
    store.keep(thanks("first"), [REDIS])
    found = store.get(1000, "first").relevance
    assert found is not None
    assert (found.mode, found.excluded["facts"]) == ("ACKNOWLEDGE", "mask masks.ACKNOWLEDGE")
    (facts,) = [one for one in found.fired if one.node == "facts"]
    assert (facts.missed, facts.tokens, facts.strength, facts.regretted) == (("a1",), 6, "hard", "")
    (turns,) = [one for one in found.fired if one.node == "working_memory"]
    assert (turns.missed, turns.tokens) == ((), 0)  # which are written all the same
    check(store)


def test_an_exclusion_is_regretted_where_the_model_says_what_was_kept_out(opened: Callable[..., TraceStore]) -> None:
    store = opened()
    store.keep(thanks("guessed", said="I guess the cache is Redis."), [REDIS])
    store.keep(thanks("other", said="Zebras have stripes."), [REDIS])
    store.keep(thanks("nothing", said="I guess the cache is Redis."), [])
    assert [regrets(store, one) for one in ("guessed", "other", "nothing")] == [{"facts": "answer"}, {}, {}]


def test_an_exclusion_is_regretted_where_the_next_question_of_the_conversation_asks_for_it(
    opened: Callable[..., TraceStore],
) -> None:
    store = opened()
    store.keep(thanks("first"), [REDIS])
    store.keep(asked("second", "does the cache run on redis?"))
    assert regrets(store, "first") == {"facts": "next question"}


@pytest.mark.parametrize("more", [{"session": "another"}, {"session": None}, {"uid": 1001}])
def test_a_question_of_another_conversation_or_user_regrets_nothing(
    opened: Callable[..., TraceStore], more: dict[str, object]
) -> None:
    store = opened()
    store.keep(thanks("first"), [REDIS])
    store.keep(asked("second", "does the cache run on redis?", **more))
    assert regrets(store, "first") == {}


def test_a_question_after_the_next_one_or_after_half_an_hour_regrets_nothing(
    opened: Callable[..., TraceStore], now: list[float]
) -> None:
    store = opened()
    store.keep(thanks("first"), [REDIS])
    store.keep(asked("second", "and the weather?"))
    store.keep(asked("third", "does the cache run on redis?"), [REDIS])
    now[0] += 1801
    store.keep(asked("fourth", "does the cache run on redis?"))
    assert [regrets(store, one) for one in ("first", "third")] == [{}, {}]


def test_figures_of_rules_add_up_over_the_turns_of_one_user_and_go_with_their_traces(
    opened: Callable[..., TraceStore], now: list[float]
) -> None:
    store = opened(days=30)
    store.keep(thanks("first"), [REDIS])
    store.keep(thanks("second", said="The cache is Redis."), [REDIS])
    store.keep(thanks("theirs", uid=1001), [REDIS])
    store.keep(replace(thanks("lean"), relevance=replace(THANKS, variant="lean")), [REDIS])
    of_facts = [one for one in store.relevance_figures(1000) if one.node == "facts"]
    assert of_facts == [
        RuleFigures("", "masks.ACKNOWLEDGE", "facts", "hard", 2, 0, 12, 1),
        RuleFigures("lean", "masks.ACKNOWLEDGE", "facts", "hard", 1, 0, 6, 0),
    ]
    now[0] += 31 * DAY
    store.prune()
    assert store.relevance_figures(1000) == []


def test_a_turn_is_traced_also_where_what_was_kept_out_cannot_be_looked_up(
    opened: Callable[..., TraceStore], caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> list[ShownEntry]:
        raise LoreError("the disk is gone")

    keeper = TraceKeeper(opened())
    with caplog.at_level(logging.WARNING, "lorekeep"):
        keeper.later(thanks("first"), broken)
        keeper.close()
    assert "what the rules of relevance kept out is not known: the disk is gone" in caplog.text
    assert names(opened()) == ["first"]


def test_a_user_s_traces_are_weighed_and_purged_alone(opened: Callable[..., TraceStore]) -> None:
    store = opened()
    store.keep(traced("mine"))
    alone = store.kept(1000)
    assert alone == (1, store.held)
    store.keep(traced("theirs", uid=1001))  # of the same texts, which are nobody's alone from now on
    assert store.kept(1000)[1] < alone[1]
    store.purge(1000)
    assert (store.kept(1000), names(store, 1001)) == ((0, 0), ["theirs"])
    assert store.kept(1001) == (1, store.held)
    check(store)
