"""The end of an answered question: its turn is saved, or the answer says why it is not, and what it waited for."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from support.planning import ME, SmallHouse, asking
from support.small_disk import small_disk

from formatters.calls import PLAIN_CALLS
from formatters.context import StateView, TurnContext
from orchestrator.answering.agent import Finished
from orchestrator.answering.answer import Answers, RunState, waiting_of
from orchestrator.answering.client_tools import call_form
from orchestrator.answering.conversations import Conversation, Conversations
from orchestrator.answering.keeping import saved
from orchestrator.answering.question import PreparedQuestion, SplitMessages, TurnFindings
from orchestrator.answering.sessions import SessionStore
from orchestrator.engine.calling import OfferedTool, ToolRules
from orchestrator.engine.messages import Admitted, Grant, InferenceJob, PrefillProgress, Sampling
from orchestrator.errors import LoreError, OverBudget
from orchestrator.karma.recall import PinnedKarma, Recalled
from orchestrator.karma.records import Kind, NewMemory, Severity
from orchestrator.prompt.budget import Governed
from orchestrator.relevance.intent import NOTHING, frame_of, intent_of
from orchestrator.service import Ask, CallDelta, Message, Principal, Text, ToolCall
from orchestrator.wire.answers import Waiting
from orchestrator.wire.requests import ToolFunction

ASK = Ask(Principal(1000, 1000, 1), (Message("user", "Where is main?"),), session="plans")


def prepared_for(turn: TurnContext, ask: Ask = ASK) -> PreparedQuestion:
    """As far as saving reads it."""
    missing: dict[str, Any] = {name: cast(Any, None) for name in PreparedQuestion.__dataclass_fields__}
    within = Governed(turn, cast(Any, None))
    recalled = Recalled(cast(Any, None), frame_of(""), intent_of(""), NOTHING, PinnedKarma())
    given = {
        "ask": ask,
        "within": within,
        "conversation": Conversation(StateView()),
        "messages": SplitMessages(turn.query, (), ()),
        "unseen": (),
        "variant": "",
        "found": TurnFindings(*[cast(Any, None)] * 3, recalled, cast(Any, None)),
        "cut": (),
    }
    return PreparedQuestion(**{**missing, **given})


def test_a_named_session_begins_with_its_first_answer(tmp_path: Path, a_turn: Any) -> None:
    sessions = SessionStore(tmp_path / "sessions.sqlite3")
    kept = saved(prepared_for(a_turn()), Conversations(sessions), Finished("stop", "x", (), ()), {})
    assert kept.session is not None
    assert (kept.session.name, kept.began, kept.not_kept) == ("plans", True, "")
    assert [turn.text for turn in sessions.turns(kept.session.id)] == ["Where is main?"]
    sessions.close()


def test_an_answer_whose_session_has_no_room_on_disk_says_that_it_was_not_saved(tmp_path: Path, a_turn: Any) -> None:
    with small_disk(tmp_path / "small", "600k") as disk:
        sessions = SessionStore(disk / "sessions.sqlite3")
        fill(disk)
        with pytest.raises(LoreError):
            sessions.create(1000, None, "x" * 60)
        kept = saved(prepared_for(a_turn()), Conversations(sessions), Finished("stop", "x", (), ()), {})
        assert kept.session is None
        assert f"no room left for {disk}/sessions.sqlite3" in kept.not_kept
        sessions.close()


def test_the_floor_is_waited_for_by_its_own_tokens_and_the_rest_by_those_of_the_prompt() -> None:
    seen = [waiting_of(PrefillProgress(1, done, 1_350), 1_300, "demo", {}) for done in (512, 1_300)]
    assert seen == [Waiting("floor", 512, 1_300, "demo"), Waiting("prompt", 1_300, 1_350, "demo")]


class SlowHouse(SmallHouse):
    """The model takes 7 s to come, the floor 30 s from the question's admission on, the rest of the prompt 3 s."""

    now = 0.0

    def answers(self) -> Answers:
        answers = super().answers()

        def ready() -> Any:
            self.now = 7.0
            return answers.model_ready()

        return replace(answers, model_ready=ready)

    async def answer(self, turn: object, model: object) -> AsyncIterator[Any]:
        floor, total = self.floor_tokens, self.floor_tokens + 10
        yield Admitted(1, total, (), 0.0)
        for seconds, done in ((20.0, floor - 1), (10.0, floor), (3.0, total)):
            self.now += seconds
            yield PrefillProgress(1, done, total)
        async for event in super().answer(turn, model):
            yield event


def test_an_answer_says_how_long_it_waited_for_the_model_and_for_the_floor(tmp_path: Path, monkeypatch: Any) -> None:
    house = SlowHouse(tmp_path)
    monkeypatch.setattr("orchestrator.answering.answer.time", SimpleNamespace(monotonic=lambda: house.now))
    timings = house.ask(asking()).lore.timings
    assert (timings.model_ms, timings.floor_ms, timings.ttft_ms) == (7_000.0, 30_000.0, 40_000.0)


def test_what_a_pause_takes_is_neither_the_models_time_nor_the_floors(monkeypatch: Any) -> None:
    now = [10.0]
    monkeypatch.setattr("orchestrator.answering.answer.time", SimpleNamespace(monotonic=lambda: now[0]))
    state = RunState(now[0])
    for phase, seconds in (("pause", 5.0), ("pause", 5.0), ("model", 3.0), ("pause", 2.0)):
        state.waits(Waiting(phase, 0, 0))
        now[0] += seconds
    state.waits(None)
    now[0] += 7.0
    state.waits(None)
    assert state.pause_s == 12.0


def fill(disk: Path) -> None:
    with (disk / "filling").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            return


class ShrinkingHouse(SmallHouse):
    """Others take memory `times` times between a plan and its first token."""

    times, step = 1, 1

    async def answer(self, turn: object, model: object) -> AsyncIterator[Text | Finished]:
        if self.times:
            self.times -= 1
            self.grant = Grant(self.grant.number + self.step, self.cells, 2_000)
            raise OverBudget("3,000 + 500 tokens exceed the window of 2,000")
        async for event in super().answer(turn, model):
            yield event


def test_a_question_is_planned_again_where_others_took_memory_meanwhile(tmp_path: Path) -> None:
    answered = ShrinkingHouse(tmp_path).ask(asking())
    assert (answered.finish_reason, answered.lore.governor.budget_tokens) == ("stop", 2_000)


@pytest.mark.parametrize(("times", "step"), [(1, 0), (9, 1)], ids=["the same grant", "again and again"])
def test_what_exceeds_the_grant_that_it_was_planned_under_is_refused(tmp_path: Path, times: int, step: int) -> None:
    house = ShrinkingHouse(tmp_path)
    house.times, house.step = times, step
    with pytest.raises(OverBudget, match="exceed the window"):
        house.ask(asking())
    assert house.times == max(0, times - 4)


class CallingHouse(SmallHouse):
    """The model calls two tools of the client."""

    async def answer(self, turn: object, model: object) -> AsyncIterator[Any]:
        del turn, model
        yield ToolCall("1", "run_sql", '{"query": "DROP TABLE users; -- NOT a drill"}')
        yield ToolCall("2", "read_file", '{"path": "users.txt"}')
        yield Finished("tool_calls", "", (), ())

    def censor(self, *, block: bool) -> str:
        severity = Severity.BLOCK if block else Severity.WARN
        new = NewMemory(ME.uid, Kind.CENSOR, "Never drop a table.", trigger="drop a table", severity=severity)
        return self.memories.add(new).id

    def events(self, ask: Ask) -> list[Any]:
        async def all_of() -> list[Any]:
            return [event async for event in self.answers().ask(ask)]

        return anyio.run(all_of)


REMEMBERING = replace(ME, scopes=frozenset({"query", "memory:read"}))


def called(events: list[Any]) -> list[str]:
    return [one.name for one in events if isinstance(one, ToolCall)]


def test_a_blocking_censor_refuses_the_call_that_goes_against_it_and_says_so(tmp_path: Path) -> None:
    house = CallingHouse(tmp_path)
    censor = house.censor(block=True)
    events = house.events(replace(asking(), principal=REMEMBERING))
    assert called(events) == ["read_file"]
    assert [one.delta for one in events if isinstance(one, Text)] == [
        f"[the call of run_sql was refused, because it goes against 'Never drop a table.': lore memory show {censor}]"
    ]
    assert events[-1].finish_reason == "tool_calls"
    assert [(one.id, one.severity) for one in events[-1].lore.censored] == [(censor, "block")]
    assert house.memories.get(ME.uid, censor).activations == 1


class TellingHouse(CallingHouse):
    """The model says a call of the client's tool in two pieces."""

    async def answer(self, turn: object, model: object) -> AsyncIterator[Any]:
        del turn
        asked: Any = model
        rules = ToolRules(call_form(PLAIN_CALLS), (OfferedTool("run_sql", "{}"),), required=True)
        text = PLAIN_CALLS.written([("run_sql", '{"query": "SELECT 1"}')])
        parser = asked.parser(InferenceJob(1, "", b"", 0, 10, Sampling(calls=rules)))
        for part in (*parser.feed(text[:-20]), *parser.feed(text[-20:])):
            yield part
        yield ToolCall(next(iter(parser.end())).id, "run_sql", '{"query": "SELECT 1"}')
        yield Finished("tool_calls", "", (), ())


@pytest.mark.parametrize(("block", "pieces"), [(True, 0), (False, 2)])
def test_no_piece_of_a_call_is_told_where_a_memory_may_refuse_it(tmp_path: Path, block: bool, pieces: int) -> None:
    house = TellingHouse(tmp_path)
    house.censor(block=block)
    events = house.events(replace(asking(), principal=REMEMBERING, tools=(ToolFunction(name="run_sql"),)))
    assert len([one for one in events if isinstance(one, CallDelta)]) == pieces
    assert called(events) == ["run_sql"]


class PackageHouse(CallingHouse):
    """The model calls two tools that packages bring; what would be carried out is kept."""

    async def answer(self, turn: object, model: object) -> AsyncIterator[Any]:
        del turn
        asked: Any = model
        calls = (("run_sql", '{"query": "DROP TABLE users"}'), ("weather", '{"town": "Ulm"}'))
        self.refusals = [await asked.refuse(*call) for call in calls]
        yield Text("Done.")
        yield Finished("stop", "Done.", (), ())


def test_a_blocking_censor_refuses_a_call_of_a_packages_tool_and_the_answer_names_it(tmp_path: Path) -> None:
    house = PackageHouse(tmp_path)
    censor = house.censor(block=True)
    events = house.events(replace(asking(), principal=REMEMBERING))
    assert house.refusals == [f"it goes against 'Never drop a table.': lore memory show {censor}", ""]
    assert [(one.id, one.severity) for one in events[-1].lore.censored] == [(censor, "block")]
    assert house.memories.get(ME.uid, censor).activations == 1


def test_a_warning_lets_a_call_of_a_packages_tool_pass_and_is_told(tmp_path: Path) -> None:
    house = PackageHouse(tmp_path)
    house.censor(block=False)
    events = house.events(replace(asking(), principal=REMEMBERING))
    assert house.refusals == ["", ""]
    assert [one.severity for one in events[-1].lore.censored] == ["warn"]


def test_an_answer_whose_every_call_is_refused_ends_as_a_text_does(tmp_path: Path) -> None:
    house = CallingHouse(tmp_path)
    house.censor(block=True)
    house.memories.add(NewMemory(ME.uid, Kind.CENSOR, "No files.", trigger="path", severity=Severity.BLOCK))
    events = house.events(replace(asking(), principal=REMEMBERING))
    assert (called(events), events[-1].finish_reason) == ([], "stop")


def test_a_warning_lets_a_call_pass(tmp_path: Path) -> None:
    house = CallingHouse(tmp_path)
    house.censor(block=False)
    events = house.events(replace(asking(), principal=REMEMBERING))
    assert called(events) == ["run_sql", "read_file"]
    assert [one.severity for one in events[-1].lore.censored] == ["warn"]


def test_a_sigil_that_may_not_read_memories_has_no_censors(tmp_path: Path) -> None:
    house = CallingHouse(tmp_path)
    house.censor(block=True)
    events = house.events(replace(asking(), principal=replace(ME, scopes=frozenset({"query"}))))
    assert (called(events), events[-1].lore.censored) == (["run_sql", "read_file"], ())
