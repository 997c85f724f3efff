"""The engine's loop over real llama.cpp in this process, all that it said, and the same prompts computed from scratch."""

from collections.abc import Sequence
from pathlib import Path

from orchestrator.engine.backend import Memory, Run
from orchestrator.engine.cache import conservation
from orchestrator.engine.cache.pool import Pool
from orchestrator.engine.checkpoints.file import usable
from orchestrator.engine.checkpoints.store import CheckpointStore
from orchestrator.engine.llama.backend import LlamaBackend
from orchestrator.engine.messages import (
    AnswerDelta,
    Completion,
    DropFloor,
    Grant,
    InferenceJob,
    PutFloor,
    Sampling,
    bytes_to_ids,
    ids_to_bytes,
)
from orchestrator.engine.scheduler.loop import Loop
from orchestrator.engine.scheduler.planner import Limits

LIKELIEST = 16
NEAR = 0.05  # nats; shapes of batches cause 0.01, another prompt is nats away

View = list[tuple[int, dict[int, float]]]  # of each generated token: which it was, and the likeliest with their logs


class Driven:
    """`folder`: where checkpoints go, none without it. Laws are checked after every round."""

    def __init__(
        self,
        backend: LlamaBackend,
        *,
        cells: int = 4096,
        window: int = 4096,
        sequences: int = 8,
        folder: Path | None = None,
        batch: int = 64,
    ) -> None:
        self.backend, self.sequences, self._grant = backend, sequences, Grant(1, cells, window)
        self._options = (folder, batch)
        self.floors: dict[str, Sequence[int]] = {}
        self.said: dict[int, list[AnswerDelta]] = {}
        self.ends: dict[int, Completion] = {}
        self.start()

    def start(self) -> None:
        """A process of its own, as it were: what it finds is what was written."""
        folder, batch = self._options
        ticks = iter(range(10**9))
        self.store = CheckpointStore("root", folder, 1 << 28) if folder is not None and usable(folder) else None
        self.loop = Loop(
            self.backend, self.sequences, Limits(batch), self._hear, lambda: next(ticks) / 1000, self.store
        )
        self.loop.handle(self._grant)
        for name, ids in self.floors.items():
            self.loop.handle(PutFloor(name, ids_to_bytes(ids)))

    def _hear(self, messages: list[object]) -> None:
        for message in messages:
            if isinstance(message, AnswerDelta):
                self.said.setdefault(message.ticket, []).append(message)
            elif isinstance(message, Completion):
                assert message.ticket not in self.ends, "a ticket ends once"
                self.ends[message.ticket] = message

    # -- what is asked

    def floor(self, name: str, ids: Sequence[int]) -> None:
        self.floors[name] = list(ids)
        self.loop.handle(PutFloor(name, ids_to_bytes(ids)))

    def drop(self, name: str) -> None:
        self.floors.pop(name, None)
        self.loop.handle(DropFloor(name))

    def ask(self, ticket: int, floor: str, tail: Sequence[int], most: int, owner: int = 1, logprobs: int = 0) -> None:
        sampling = Sampling(logprobs=logprobs) if logprobs else Sampling()
        self.loop.handle(InferenceJob(ticket, floor, ids_to_bytes(tail), owner, most, sampling))

    def round(self) -> None:
        self.loop.round()
        self.loop.check()

    def finish(self) -> None:
        while self.loop.busy() or self.loop.has_idle_work():
            self.round()
        self.round()
        assert [
            conservation.broken(pool) for pool in self.loop.pools.by_name.values() if conservation.broken(pool)
        ] == []

    # -- what came of it

    def text(self, ticket: int) -> str:
        return "".join(delta.text for delta in self.said.get(ticket, []))

    def ids(self, ticket: int) -> list[int]:
        return [token for delta in self.said.get(ticket, []) for token in bytes_to_ids(delta.ids)]

    def pool(self, name: str) -> Pool:
        return self.loop.pools.by_name[name]

    def views(self, ticket: int, floor: str, tail: Sequence[int], most: int) -> View:
        """Asks and waits: what the loop generated, with the likeliest tokens of each place."""
        self.ask(ticket, floor, tail, most, logprobs=LIKELIEST)
        self.finish()
        return self.view(ticket)

    def view(self, ticket: int) -> View:
        chosen = [one for delta in self.said.get(ticket, []) for one in delta.chosen]
        return [(one.token.token, {chance.token: chance.logprob for chance in one.likeliest}) for one in chosen]

    def recomputed(self, ids: Sequence[int], most: int) -> View:
        """The same from an empty context, the whole prompt in steps of 64, then token by token."""
        memory, view = self.backend.open(-(-(len(ids) + most) // 256) * 256, 2), View()
        sampler = self.backend.sampler(Sampling(logprobs=LIKELIEST))
        try:
            sampled = memory.sample(feed(memory, ids, 0), sampler)
            while not sampled.end and len(view) < most:
                view.append((sampled.token, dict(sampled.logprobs)))
                sampled = memory.sample(feed(memory, [sampled.token], len(ids) + len(view) - 1), sampler)
        finally:
            sampler.close()
            memory.close()
        return view

    @staticmethod
    def near(one: View, other: View) -> bool:
        """Whether the same tokens were chosen, and the likeliest were as likely."""
        if [token for token, _ in one] != [token for token, _ in other]:
            return False
        for (_, mine), (_, yours) in zip(one, other, strict=True):
            both = mine.keys() & yours.keys()
            if len(both) < LIKELIEST * 3 // 4 or any(abs(mine[token] - yours[token]) > NEAR for token in both):
                return False
        return True

    # -- its end

    def restart(self) -> None:
        """Stopped in order: what stood is written, and found."""
        self.close()
        self.start()

    def kill(self) -> None:
        """Gone without a word, but for what its writer had in hand."""
        store = self.store
        self._free()
        if store is not None:
            store.close()
        self.start()

    def close(self) -> None:
        self.loop.close()
        self._free()

    def _free(self) -> None:
        """The contexts go without a look at what stood in them."""
        for name in list(self.loop.pools.by_name):
            self.loop.pools.discard(name)


def feed(memory: Memory, ids: Sequence[int], start: int) -> int:
    for at in range(0, len(ids), 64):
        memory.decode([Run(0, start + at, ids[at : at + 64], output=at + 64 >= len(ids))])
    return (len(ids) - 1) % 64
