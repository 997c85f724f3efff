"""What time does to memories: conversations that are over become episodes, episodes age, and what a setting says goes.

For a worker thread. Each step is a transaction of its own: where one fails, the next tending goes on from there.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.answering.sessions import Session, SessionStore
from orchestrator.karma.episodes import QUIET_S, PastConversation, episode_of
from orchestrator.karma.records import DAY_S
from orchestrator.karma.store import MemoryStore

MOST_AT_ONCE = 100  # conversations of one tending; the rest waits for the next


@dataclass(frozen=True)
class Tending:
    """`episodes`: whether conversations become episodes; `retention_days`: after which what no model is shown is deleted, 0
    for never. `clock`: seconds since the epoch."""

    sessions: SessionStore
    memories: MemoryStore
    episodes: bool = True
    retention_days: float = 0.0
    clock: Callable[[], float] = time.time

    def tend(self) -> None:
        """Raises LoreError for a database that cannot be read or written."""
        now = self.clock()
        if self.episodes:
            for session, told in self.sessions.untold(now - QUIET_S, MOST_AT_ONCE):
                self._tell(session, told)
        self.memories.age(now)
        if self.retention_days:
            self.memories.expire(now - self.retention_days * DAY_S)

    def _tell(self, session: Session, told: int) -> None:
        """The memory first: told of twice it is merged, and told of never it would be lost."""
        turns = self.sessions.turns(session.id)
        before = sum(1 for one in turns[:told] if one.role == "user")
        past = PastConversation(
            session.uid,
            session.id,
            session.name,
            session.codex,
            session.used,
            asked=[one.text for one in turns[told:] if one.role == "user"],
            gists=[one.text for one in self.sessions.gists(session.id) if one.first > before],
        )
        episode = episode_of(past)
        if episode is not None:
            self.memories.add(episode)
        self.sessions.mark_told(session.id, len(turns))
