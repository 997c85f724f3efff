"""The end of an answered question: its turn is saved, or the answer says why it is not."""

from pathlib import Path
from typing import Any, cast

import pytest
from support.small_disk import small_disk

from formatters.context import TurnContext
from orchestrator.answering.agent import Finished
from orchestrator.answering.answer import saved, waiting_of
from orchestrator.answering.conversations import Conversations, SessionStore
from orchestrator.answering.preparing import PreparedQuestion
from orchestrator.engine.messages import PrefillProgress
from orchestrator.errors import LoreError
from orchestrator.service import Ask, Message, Principal
from orchestrator.wire.answers import Waiting

ASK = Ask(Principal(1000, 1000, 1), (Message("user", "Where is main?"),), session="plans")


def prepared_for(turn: TurnContext, ask: Ask = ASK) -> PreparedQuestion:
    """As far as saving reads it."""
    missing: dict[str, Any] = {name: cast(Any, None) for name in PreparedQuestion.__dataclass_fields__}
    given = {"ask": ask, "turn": turn, "actions": (), "unseen": ()}
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


def fill(disk: Path) -> None:
    with (disk / "filling").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            return
