"""The exact fake with a clock that charges for what it does: tokens, saved and restored pieces, contexts."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from support.fake_engine import FakeBackend, FakeMemory
from support.machine import Machine

from orchestrator.engine.backend import Run


@dataclass(frozen=True)
class Prices:
    """Seconds."""

    step: float = 0.005
    token: float = 0.001
    save: float = 0.05
    restore: float = 0.1
    open: float = 0.1

    @property
    def piece(self) -> float:
        """Of the dearest thing that cannot be divided: a range that moves is saved and restored."""
        return max(self.save + self.restore, self.open)


class ChargingBackend(FakeBackend):
    """Its answers do not end by themselves."""

    def __init__(self, prices: Prices, *, ranges: bool = True) -> None:
        super().__init__(10**9, ranges=ranges)
        self.prices = prices
        self.seconds = 0.0

    def open(self, cells: int, sequences: int) -> FakeMemory:
        self.seconds += self.prices.open
        return ChargingMemory(cells, sequences, self.end_every, cells * 8, self.info.ranges, self)


class ChargingMemory(FakeMemory):
    def __init__(
        self, cells: int, sequences: int, end_every: int, footprint: int, ranges: bool, backend: ChargingBackend
    ) -> None:
        super().__init__(cells, sequences, end_every, footprint, ranges)
        self._backend = backend

    def decode(self, runs: Sequence[Run]) -> None:
        self._backend.seconds += self._backend.prices.step + self._backend.prices.token * sum(
            len(run.tokens) for run in runs
        )
        super().decode(runs)

    def save(self, sequence: int) -> bytes:
        self._backend.seconds += self._backend.prices.save
        return super().save(sequence)

    def restore(self, sequence: int, state: bytes) -> int:
        self._backend.seconds += self._backend.prices.restore
        return super().restore(sequence, state)


class ChargedMachine(Machine):
    """A machine whose time is what its backend charged; `gaps` are the seconds between two tokens of a ticket."""

    def __init__(self, prices: Prices, folder: Path | None = None, **options: object) -> None:
        self.charging = ChargingBackend(prices)
        super().__init__(folder=folder, backend=self.charging, **options)

    def _tick(self) -> float:
        return self.charging.seconds

    def gaps(self, ticket: int, rounds: int) -> Sequence[float]:
        times = [self.charging.seconds]
        for _ in range(rounds):
            before = len(self.answer(ticket))
            self.round()
            self.loop.flush()
            if len(self.answer(ticket)) > before:
                times.append(self.charging.seconds)
        assert len(times) > 1, "the answer stands still"
        return [after - before for before, after in pairwise(times)]
