"""What becomes of memories: judged procedures, triggered censors, outcomes that a turn tells, votes on answers."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from orchestrator.karma.changes import (
    EFFECTIVE_ABOVE,
    ESCALATED_FROM,
    INEFFECTIVE_BELOW,
    JUDGED_FROM,
    judged,
    may_be_promoted,
    triggered,
)
from orchestrator.karma.learning import HeardTurn, VotedAnswer
from orchestrator.karma.memories import Memories
from orchestrator.karma.records import (
    KINDS,
    DecisionOutcome,
    Kind,
    MemoryRecord,
    MemoryState,
    NewMemory,
    Severity,
)
from orchestrator.karma.staleness import Staleness
from orchestrator.karma.store import MemoryStore
from orchestrator.wire.memories import MemoryChange

ME = 1000
S = MemoryState


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    opened = MemoryStore(tmp_path / "memories.sqlite3")
    yield opened
    opened.close()


@pytest.fixture
def memories(store: MemoryStore) -> Memories:
    return Memories(store, Staleness(store, lambda codex, path: "", lambda codex: ()))


def record(kind: Kind, **more: object) -> MemoryRecord:
    return replace(MemoryRecord("ab" * 5, kind, KINDS[kind].first, ME, "x", "x", "x"), **more)  # type: ignore[arg-type]


def after(one: MemoryRecord, *judgements: bool) -> MemoryRecord:
    for right in judgements:
        one = judged(one, right=right)
    return one


@pytest.mark.parametrize(
    ("judgements", "state"),
    [
        ((True,) * 4, S.ACTIVE),
        ((True,) * 5, S.EFFECTIVE),
        ((True, True, True, False, False), S.ACTIVE),  # 0.6 is not above
        ((True, True, False, False, False), S.ACTIVE),  # 0.4 is not below
        ((True, False, False, False, False), S.INEFFECTIVE),
        ((False,) * 5 + (True,) * 9, S.EFFECTIVE),
        ((True,) * 5 + (False,) * 4, S.ACTIVE),
    ],
)
def test_a_procedure_by_the_share_of_its_judged_uses_that_worked(judgements: tuple[bool, ...], state: S) -> None:
    assert after(record(Kind.PROCEDURE), *judgements).state is state


@given(some.lists(some.booleans(), max_size=40), some.sampled_from([Kind.PROCEDURE, Kind.CENSOR]))
def test_every_judgement_counts_and_every_state_on_the_way_follows_the_table(
    judgements: list[bool], kind: Kind
) -> None:
    one = record(kind)
    for right in judgements:
        before, one = one, judged(one, right=right)
        assert one.state is before.state or KINDS[kind].may_become(before.state, one.state)
    assert one.judged == len(judgements)
    assert one.effectiveness == pytest.approx(sum(judgements) / max(1, len(judgements)), abs=0.01)
    if one.state is S.EFFECTIVE:
        assert one.judged >= JUDGED_FROM
        assert one.effectiveness > EFFECTIVE_ABOVE


def test_a_censor_of_false_alarms_retires_unless_a_person_consecrated_it() -> None:
    assert after(record(Kind.CENSOR), *[False] * 4).state is S.CREATED
    retired = after(record(Kind.CENSOR), *[False] * 5)
    assert retired.state is S.RETIRED
    assert retired.effectiveness < INEFFECTIVE_BELOW
    assert after(record(Kind.CENSOR, pinned=True), *[False] * 9).state is S.CREATED


def test_only_procedures_and_censors_are_judged() -> None:
    one = record(Kind.FACT)
    assert judged(one, right=True) is one


def test_a_censor_is_active_once_it_was_triggered_and_may_be_promoted_after_five_times() -> None:
    one = record(Kind.CENSOR, severity=Severity.WARN)
    seen = []
    for _ in range(ESCALATED_FROM):
        one = triggered(one)
        seen.append((one.state, may_be_promoted(one)))
    assert seen == [(S.ACTIVE, False)] * (ESCALATED_FROM - 1) + [(S.ACTIVE, True)]
    assert not may_be_promoted(judged(one, right=False))


def test_a_person_promotes_a_censor_and_nothing_else_does(memories: Memories, store: MemoryStore) -> None:
    made = store.add(NewMemory(ME, Kind.CENSOR, "Never push.", trigger="push", severity=Severity.WARN))
    for _ in range(3 * ESCALATED_FROM):
        store.trigger(ME, made.id)
    assert (store.get(ME, made.id).state, store.get(ME, made.id).severity) == (S.ACTIVE, Severity.WARN)
    assert [one.id for one in memories.review(ME)] == [made.id]
    promoted = memories.change(ME, made.id, MemoryChange(do="confirm"))
    assert (promoted.state, promoted.severity) == ("escalated", "block")
    assert memories.review(ME) == ()


def test_a_suspect_censor_that_is_confirmed_is_not_promoted_by_that(store: MemoryStore) -> None:
    made = store.add(NewMemory(ME, Kind.CENSOR, "Never push.", codex="demo", severity=Severity.WARN))
    for _ in range(ESCALATED_FROM):
        store.trigger(ME, made.id)
    store.mark_suspect("demo", {made.id: "a.py changed"})
    assert store.confirm(ME, made.id).state is S.ACTIVE
    assert store.confirm(ME, made.id).state is S.ESCALATED


def decide(memories: Memories, text: str = "We decided to use SQLite.") -> str:
    (noted,) = memories.note(HeardTurn(ME, text, source="trace:1"))
    return noted.id


def test_an_outcome_that_a_turn_tells_is_only_suggested_and_a_person_takes_it(
    memories: Memories, store: MemoryStore
) -> None:
    decision = decide(memories)
    (told,) = memories.note(
        HeardTurn(ME, "That worked!", earlier=("hi", "We decided to use SQLite."), source="trace:2")
    )
    assert (told.id, told.suggested, told.made) == (decision, "success", False)
    one = store.get(ME, decision)
    assert (one.state, one.outcome, one.micro) == (S.RECORDED, None, "We decided to use SQLite.")
    assert [each.id for each in memories.review(ME)] == [decision]
    memories.change(ME, decision, MemoryChange(do="confirm"))
    one = store.get(ME, decision)
    assert (one.state, one.outcome, one.suggested) == (S.REVIEWED, DecisionOutcome.SUCCESS, None)
    assert one.micro == "We decided to use SQLite. [success]"


def test_another_outcome_than_the_suggested_one_may_be_given(memories: Memories, store: MemoryStore) -> None:
    decision = decide(memories)
    memories.note(HeardTurn(ME, "That worked!", earlier=("We decided to use SQLite.",)))
    memories.change(ME, decision, MemoryChange(do="outcome", outcome="failure"))
    assert (store.get(ME, decision).outcome, store.get(ME, decision).suggested) == (DecisionOutcome.FAILURE, None)
    assert memories.review(ME) == ()


@pytest.mark.parametrize(
    ("text", "earlier"),
    [
        ("That worked!", ()),
        ("That worked!", ("We use Redis for caching.",)),
        ("Did that work?", ("We decided to use SQLite.",)),
        ("That worked!", ("We decided to use Postgres.",)),  # which was forgotten
    ],
)
def test_without_a_decision_of_the_conversation_no_outcome_is_noted(
    memories: Memories, text: str, earlier: tuple[str, ...]
) -> None:
    decide(memories)
    assert memories.note(HeardTurn(ME, text, earlier=earlier)) == ()


def test_a_procedure_that_the_answer_used_is_judged_by_what_the_user_says_of_it(
    memories: Memories, store: MemoryStore
) -> None:
    text = "To restore a backup: stop the service, copy the file, start the service."
    used = store.add(NewMemory(ME, Kind.PROCEDURE, text))
    unused = store.add(NewMemory(ME, Kind.PROCEDURE, "To paint a fence: buy colour and brushes."))
    turn = HeardTurn(ME, "That worked.", before=text, procedures={used.id: text, unused.id: unused.text, "gone": text})
    memories.note(turn)
    assert (store.get(ME, used.id).judged, store.get(ME, used.id).effectiveness) == (1, 1.0)
    assert store.get(ME, unused.id).judged == 0
    memories.note(replace(turn, text="That worked partly."))
    assert store.get(ME, used.id).judged == 1


@pytest.mark.parametrize(
    ("unsure", "plain", "state"),
    [
        ("I think we use Redis for sessions.", "We use Redis for sessions.", S.NEW),
        ("Maybe never push to main.", "Never push to main.", S.CREATED),
    ],
)
def test_what_was_unsure_stands_once_it_is_stated_plainly(
    memories: Memories, store: MemoryStore, unsure: str, plain: str, state: S
) -> None:
    (proposed,) = memories.note(HeardTurn(ME, unsure, source="trace:1"))
    assert (proposed.state, store.get(ME, proposed.id).micro) == ("proposed", f"{plain} [50% sure]")
    (stated,) = memories.note(HeardTurn(ME, plain, source="trace:2"))
    assert (stated.id, stated.state, stated.made) == (proposed.id, state, False)
    assert store.get(ME, proposed.id).micro == plain
    memories.note(HeardTurn(ME, unsure, source="trace:3"))
    assert [one.state for one in store.all_of(ME)] == [state]


WRONG = VotedAnswer(
    ME, "ab12", "what is the cache?", "The cache is Redis.", up=False, note="it is memcached", codex="demo"
)


RIGHT = replace(WRONG, up=True, note="")


def test_a_down_vote_with_a_note_proposes_why_the_answer_was_wrong_and_cites_its_trace(
    memories: Memories, store: MemoryStore
) -> None:
    told = memories.voted(WRONG)
    (made,) = store.all_of(ME)
    assert told is not None
    assert (told.id, told.state, told.made) == (made.id, "proposed", True)
    assert made.text == 'It is memcached. It was wrong to answer "The cache is Redis." to "what is the cache?".'
    assert (made.state, made.source, made.codex) == (S.PROPOSED, "trace:ab12", "demo")
    memories.voted(WRONG)
    assert len(store.all_of(ME)) == 1


def test_a_vote_without_a_note_or_by_who_may_not_write_makes_no_memory(memories: Memories, store: MemoryStore) -> None:
    votes = (replace(WRONG, note=""), replace(WRONG, may_write=False), replace(RIGHT, may_write=False))
    assert [memories.voted(vote) for vote in votes] == [None, None, None]
    assert store.all_of(ME) == []


def test_an_up_vote_on_a_short_answer_proposes_it_with_its_question_and_cites_its_trace(
    memories: Memories, store: MemoryStore
) -> None:
    told = memories.voted(RIGHT)
    (made,) = store.all_of(ME)
    assert told is not None
    assert (told.id, told.state, told.made) == (made.id, "proposed", True)
    assert made.text == 'The right answer to "what is the cache?" is "The cache is Redis."'
    assert (made.state, made.source, made.codex) == (S.PROPOSED, "trace:ab12", "demo")
    assert memories.voted(replace(RIGHT, moved=False)) is None
    memories.voted(WRONG)
    assert [one.state for one in store.all_of(ME)] == [S.PROPOSED, S.INACTIVE]


def test_an_answer_that_names_something_in_backticks_is_verified_like_another(
    memories: Memories, store: MemoryStore
) -> None:
    memories.voted(replace(RIGHT, answer="The cache is made in `src/cache.py`."))
    (made,) = store.all_of(ME)
    assert made.text == 'The right answer to "what is the cache?" is "The cache is made in `src/cache.py`."'


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("what is the cache?", "The cache is Redis. It is on port 6379."),
        ("what is the cache?", "The cache is probably Redis."),
        ("what is the cache?", "I do not know the cache."),
        ("what is the cache?", "Which cache do you mean?"),
        ("what is the cache?", "`redis.Redis()` is made here:\n```python\nredis.Redis()\n```"),
        ("what is the cache?", "The cache is Redis, " + "and it is large, " * 20 + "as it was."),
        ("is it fast?", "The cache is fast."),
        ("what about that one?", "The cache is Redis."),
        ("thanks", "The cache is Redis."),
        ("name the cache", "The cache is Redis."),
    ],
)
def test_an_up_vote_makes_no_memory_of_what_is_long_unsure_or_not_understood_alone(
    memories: Memories, store: MemoryStore, question: str, answer: str
) -> None:
    assert memories.voted(replace(RIGHT, question=question, answer=answer)) is None
    assert store.all_of(ME) == []


def test_an_up_vote_makes_no_memory_of_what_the_answer_has_from_one_or_where_nothing_is_learned(
    memories: Memories, store: MemoryStore
) -> None:
    known = store.add(NewMemory(ME, Kind.FACT, "The cache is Redis."))
    assert memories.voted(replace(RIGHT, memories=(known.id,))) is None
    assert replace(memories, learn="off").voted(RIGHT) is None
    assert [one.id for one in store.all_of(ME)] == [known.id]


def test_an_up_vote_after_all_sets_the_proposal_aside_and_leaves_what_a_person_confirmed(
    memories: Memories, store: MemoryStore
) -> None:
    right = replace(WRONG, up=True, answer="I cannot tell.")
    memories.voted(WRONG)
    memories.voted(right)
    assert [one.state for one in store.all_of(ME)] == [S.INACTIVE]
    memories.voted(replace(WRONG, note="it is a file"))
    (proposal,) = store.all_of(ME, states=[S.PROPOSED])
    store.confirm(ME, proposal.id)
    memories.voted(right)
    assert store.get(ME, proposal.id).state is S.NEW


def test_a_vote_moves_trust_once_and_judges_the_procedures_that_the_answer_used(
    memories: Memories, store: MemoryStore
) -> None:
    used = store.add(NewMemory(ME, Kind.PROCEDURE, "restart the cache, then the web server"))
    shown = store.add(NewMemory(ME, Kind.PROCEDURE, "paint the fence with a brush"))
    vote = replace(
        WRONG, up=True, answer="restart the cache, then the web server", memories=(used.id, shown.id, "gone")
    )
    memories.voted(vote)
    memories.voted(replace(vote, moved=False))
    found = [(one.trust, one.judged) for one in (store.get(ME, used.id), store.get(ME, shown.id))]
    assert found == [(0.55, 1), (0.55, 0)]
