"""The whole loop over real models with memories of all kinds: sharing, eviction and a restart change no answer."""

import random
from pathlib import Path

import pytest
from support import odd_models

from orchestrator.engine.checkpoints.file import usable
from orchestrator.engine.checkpoints.store import CheckpointStore
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.messages import (
    AnswerDelta,
    Completion,
    Grant,
    InferenceJob,
    Outcome,
    PutFloor,
    bytes_to_ids,
    ids_to_bytes,
)
from orchestrator.engine.model import EngineSpec
from orchestrator.engine.scheduler.loop import Loop
from orchestrator.engine.scheduler.planner import Limits

FLOOR = [random.Random(1).randrange(4000) for _ in range(700)]


class Engine:
    """A loop on one backend, and what it said."""

    def __init__(
        self, backend: LlamaBackend, folder: Path | None = None, cells: int = 4096, sequences: int = 8
    ) -> None:
        ticks = iter(range(10**9))
        self.store = CheckpointStore("root", folder, 1 << 28) if folder is not None and usable(folder) else None
        self.loop = Loop(backend, sequences, Limits(64), self._hear, lambda: next(ticks) / 1000, self.store)
        self.loop.handle(Grant(1, cells, 4096))
        self.loop.handle(PutFloor("code", ids_to_bytes(FLOOR)))
        self.said: dict[int, list[int]] = {}
        self.ends: dict[int, Completion] = {}

    def _hear(self, messages: list[object]) -> None:
        for message in messages:
            if isinstance(message, AnswerDelta):
                self.said.setdefault(message.ticket, []).extend(bytes_to_ids(message.ids))
            elif isinstance(message, Completion):
                self.ends[message.ticket] = message

    def ask(self, ticket: int, tail: list[int], most: int = 6) -> None:
        self.loop.handle(InferenceJob(ticket, "code", ids_to_bytes(tail), 1, most))

    def turn(self, ticket: int, before: list[int]) -> list[int]:
        """Asks the next question of a conversation; returns all of it, the newest answer included."""
        tail = [*before, ticket, ticket + 1, ticket + 2]
        self.ask(ticket, tail)
        self.finish()
        return [*tail, *self.said.get(ticket, [])]

    def finish(self) -> "Engine":
        while self.loop.busy() or self.loop.has_idle_work():
            self.loop.round()
            self.loop.check()
        return self

    def close(self) -> None:
        self.loop.close()
        self.kill()

    def kill(self) -> None:
        """Nothing more is written."""
        for name in list(self.loop.pools.by_name):
            self.loop.pools.close(name)


@pytest.fixture(scope="module", params=["recurrent", "hybrid", "sliding", "sliding in ranges", "sliding small"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    kind, _, windows = request.param.partition(" ")
    path = getattr(odd_models, kind)(tmp_path_factory.mktemp("odd") / "model.gguf")
    loaded = LlamaBackend(EngineSpec(str(path), threads=1, batch=64, gpu_layers=0, **odd_models.WINDOWS[windows]))
    assert loaded.info.ranges is (windows == "in ranges")
    yield loaded
    loaded.close()


def alone(backend: LlamaBackend, tail: list[int]) -> list[int]:
    engine = Engine(backend)
    engine.ask(1, tail)
    said = engine.finish().said.get(1, [])
    engine.close()
    return said


def test_conversations_at_once_compute_the_floor_once_and_answer_as_if_alone(backend: LlamaBackend) -> None:
    engine, tails = Engine(backend), {n: [10 * n + at for at in range(5 + n)] for n in range(1, 9)}
    for ticket, tail in tails.items():
        engine.ask(ticket, tail)
    engine.finish()
    assert {end.outcome for end in engine.ends.values()} == {Outcome.DONE}
    assert sum(end.computed for end in engine.ends.values()) == len(FLOOR) + sum(len(tail) for tail in tails.values())
    assert all(engine.said[ticket] == alone(backend, tail) for ticket, tail in tails.items())
    engine.close()


def test_a_conversation_goes_on_from_its_own_end(backend: LlamaBackend) -> None:
    engine = Engine(backend)
    engine.ask(1, [1, 2, 3])
    engine.finish()
    longer = [1, 2, 3, *engine.said[1], 7, 8]
    engine.ask(2, longer)
    engine.finish()
    assert engine.said[2] == alone(backend, longer)
    assert engine.ends[2].cached >= len(FLOOR)
    engine.close()


def test_after_a_restart_the_floor_is_restored_and_the_answer_is_the_same(
    backend: LlamaBackend, tmp_path: Path
) -> None:
    engine = Engine(backend, tmp_path / "kv")
    engine.ask(1, [1, 2, 3])
    engine.finish().close()
    engine = Engine(backend, tmp_path / "kv")
    engine.ask(2, [4, 5])
    engine.finish()
    assert engine.ends[2].computed == 2
    assert engine.said[2] == alone(backend, [4, 5])
    engine.close()


@pytest.mark.parametrize("end", [Engine.close, Engine.kill])
def test_after_a_restart_a_conversation_goes_on_from_its_tail(backend: LlamaBackend, tmp_path: Path, end) -> None:
    engine, talk = Engine(backend, tmp_path / "kv"), list[int]()
    for ticket in (1, 2, 3):
        talk = engine.turn(ticket, talk)
    assert engine.store is not None
    engine.store.flush()
    end(engine)
    for ticket in (4, 5):
        engine = Engine(backend, tmp_path / "kv")
        asked = [*talk, ticket, ticket + 1, ticket + 2]
        talk = engine.turn(ticket, talk)
        # The last token of an answer was never computed: it stands in front of the next question.
        assert engine.ends[ticket].computed <= 3 + 1
        assert engine.said[ticket] == alone(backend, asked)
        engine.close()


def test_another_user_s_tail_is_never_restored(backend: LlamaBackend, tmp_path: Path) -> None:
    engine = Engine(backend, tmp_path / "kv")
    engine.ask(1, [5] * 40)
    engine.finish().close()
    engine = Engine(backend, tmp_path / "kv")
    engine.loop.handle(InferenceJob(2, "code", ids_to_bytes([5] * 40), 2, 6))
    engine.finish()
    assert engine.ends[2].cached == len(FLOOR)
    engine.close()


def test_of_a_recurrent_conversation_only_its_beginning_and_the_last_turns_are_kept(tmp_path: Path) -> None:
    backend = LlamaBackend(
        EngineSpec(str(odd_models.recurrent(tmp_path / "m.gguf")), threads=1, batch=64, gpu_layers=0)
    )
    engine, talk = Engine(backend, tmp_path / "kv"), list[int]()
    for ticket in range(1, 7):
        talk = engine.turn(ticket, talk)
    engine.close()
    assert len(list((tmp_path / "kv").glob("*.kv"))) == 4  # the floor, the beginning, and two turns
    backend.close()


def test_what_is_written_of_a_turn_is_the_turn_and_not_its_floor(tmp_path: Path) -> None:
    backend = LlamaBackend(EngineSpec(str(odd_models.sliding(tmp_path / "m.gguf")), threads=1, batch=64, gpu_layers=0))
    engine, talk = Engine(backend, tmp_path / "kv"), list[int]()
    for ticket in range(1, 5):
        talk = engine.turn(ticket, talk)
    engine.close()
    sizes = sorted(path.stat().st_size for path in (tmp_path / "kv").glob("*.kv"))
    assert len(sizes) == 5
    assert sum(sizes[:4]) < sizes[4] / 5
    backend.close()


def test_a_conversation_may_have_more_turns_than_there_are_sequences(backend: LlamaBackend) -> None:
    engine, talk = Engine(backend, sequences=4), list[int]()
    for ticket in range(1, 9):
        asked, talk = [*talk, ticket, ticket + 1, ticket + 2], engine.turn(ticket, talk)
        assert engine.said[ticket] == alone(backend, asked)
        assert engine.ends[ticket].computed <= (len(FLOOR) if ticket == 1 else 0) + 4
    engine.close()


def test_a_pool_grows_and_what_stood_in_it_stands(backend: LlamaBackend) -> None:
    engine = Engine(backend, cells=1300)
    talk = engine.turn(1, [])
    engine.loop.handle(Grant(1, 8192, 4096))
    engine.ask(2, [*talk, *range(900)])
    assert engine.finish().ends[2].computed <= 901
    assert engine.said[2] == alone(backend, [*talk, *range(900)])
    assert engine.loop.pools.held() > 1300
    engine.close()


def test_random_conversations_under_little_room_answer_as_if_alone(backend: LlamaBackend, tmp_path: Path) -> None:
    chance, engine, tails = random.Random(4), Engine(backend, tmp_path / "kv", cells=1300), dict[int, list[int]]()
    for ticket in range(1, 25):
        before = chance.choice([0, *tails])
        begun = [*tails[before], *engine.said.get(before, [])] if before in engine.ends else []
        tails[ticket] = [*begun, *(chance.randrange(3) for _ in range(chance.randint(1, 30)))][:250]
        engine.ask(ticket, tails[ticket])
        for _ in range(chance.randrange(6)):
            engine.loop.round()
            engine.loop.check()
    engine.finish()
    assert {end.outcome for end in engine.ends.values()} == {Outcome.DONE}
    right = [engine.said.get(ticket, []) == alone(backend, tail) for ticket, tail in tails.items()]
    assert sum(right) >= 22  # the shape of a batch may turn a tie of random weights
    engine.close()
