"""The exact fake, failing on demand: a poisonous token, the next so many steps, or contexts above a size."""

from collections.abc import Sequence
from typing import Any

from support.fake_engine import FakeBackend, FakeMemory

from orchestrator.engine.backend import BackendError, Run

POISON = 255


class FailingMemory(FakeMemory):
    owner: "FailingBackend"

    def decode(self, runs: Sequence[Run]) -> None:
        if self is self.owner.broken:
            raise BackendError("a broken context")
        if any(POISON in run.tokens for run in runs):
            raise BackendError("a poisonous token")
        if self.owner.failures:
            self.owner.failures -= 1
            raise BackendError("this step fails")
        super().decode(runs)

    def close(self) -> None:
        super().close()
        self.cells = 0


class FailingBackend(FakeBackend):
    """`failures`: steps that fail from now on. `broken`: the memory whose steps all fail. `most_cells`: of all contexts."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.failures = 0
        self.broken: object = None
        self.most_cells = 1 << 30
        self.opened = 0  # contexts that were asked for
        self._open: list[FailingMemory] = []

    def open(self, cells: int, sequences: int) -> FailingMemory:
        self.opened += 1
        self._open = [memory for memory in self._open if memory.cells]
        if sum(memory.cells for memory in self._open) + cells > self.most_cells:
            raise BackendError(f"no context of {cells} tokens")
        memory = FailingMemory(cells, sequences, self.end_every, footprint=cells * 8, ranges=self.info.ranges)
        memory.owner = self
        self._open.append(memory)
        return memory
