"""The engine's loop over the exact fake, everything it says, and the naive model that it is held against."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.fake_engine import END, FakeBackend, FakeSampler

from orchestrator.engine.checkpoints.file import usable
from orchestrator.engine.checkpoints.store import CheckpointStore
from orchestrator.engine.messages import (
    AnswerDelta,
    Completion,
    Grant,
    InferenceJob,
    PutFloor,
    Sampling,
    bytes_to_ids,
    ids_to_bytes,
)
from orchestrator.engine.scheduler.loop import Loop
from orchestrator.engine.scheduler.planner import Limits

END_EVERY = 12


def naive_answer(ids: list[int], max_tokens: int) -> list[int]:
    """The fake's answer computed from the whole token list, with no cache anywhere."""
    ids, answer = list(ids), []
    while len(answer) < max_tokens:
        digest = hashlib.sha256(hashlib.sha256(repr(ids).encode()).digest() + FakeSampler(Sampling()).salt).digest()
        if int.from_bytes(digest[:4], "big") % END_EVERY == 0:
            break
        token = 97 + digest[5] % 26
        assert token != END
        answer.append(token)
        ids.append(token)
    return answer


@dataclass
class Machine:
    """A loop over the fake, and everything that it said."""

    cells: int = 4096
    window: int = 2048
    sequences: int = 6
    batch: int = 64
    folder: Path | None = None
    disk_budget: int = 1 << 30
    answers: dict[int, list[int]] = field(default_factory=dict)
    ends: dict[int, list[Completion]] = field(default_factory=dict)
    told: list[object] = field(default_factory=list)
    time: float = 0.0
    ranges: bool = True
    backend: FakeBackend | None = None

    def __post_init__(self) -> None:
        self.backend = self.backend or FakeBackend(END_EVERY, ranges=self.ranges)
        self.floors: dict[str, list[int]] = {}
        self.start()

    def start(self) -> None:
        self.store = None
        if self.folder is not None and usable(self.folder):
            self.store = CheckpointStore("root", self.folder, self.disk_budget)
        self.loop = Loop(self.backend, self.sequences, Limits(self.batch), self._hear, self._tick, self.store)
        self.loop.handle(Grant(1, self.cells, self.window))
        for name, ids in self.floors.items():
            self.loop.handle(PutFloor(name, ids_to_bytes(ids)))

    def restart(self) -> None:
        """A new process: what runs is lost, what was written is found."""
        self.loop.close()
        self.start()

    def _tick(self) -> float:
        self.time += 0.001
        return self.time

    def _hear(self, messages: list[object]) -> None:
        self.told += messages
        for message in messages:
            if isinstance(message, AnswerDelta):
                self.answers.setdefault(message.ticket, []).extend(bytes_to_ids(message.ids))
            elif isinstance(message, Completion):
                self.ends.setdefault(message.ticket, []).append(message)

    def floor(self, name: str, ids: Sequence[int]) -> None:
        self.floors[name] = list(ids)
        self.loop.handle(PutFloor(name, ids_to_bytes(ids)))

    def ask(
        self, ticket: int, floor: str, tail: Sequence[int], max_tokens: int, owner: int = 1, marks: tuple[int, ...] = ()
    ) -> None:
        self.loop.handle(InferenceJob(ticket, floor, ids_to_bytes(tail), owner, max_tokens, marks=marks))

    def answer(self, ticket: int) -> list[int]:
        return self.answers.get(ticket, [])

    def round(self) -> None:
        self.loop.round()
        self.loop.check()
        for pool in self.loop.pools.by_name.values():
            assert len(pool.memory.tokens) == pool.cells_used(), "as many cells hold something as the tree says"

    def finish(self) -> None:
        rounds = 0
        while self.loop.busy():
            self.round()
            rounds += 1
            assert rounds < 5000, "the loop does not come to an end"
        self.round()
