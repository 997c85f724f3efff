"""What a type of KV changes of a model's predictions, measured on a text, a step at a time.

    ids ─┬─▶ a step with f16 ─────────────┐
         └─▶ the same with the other type ┴─▶ divergence behind each token ─▶ KvChange

Both have a memory of their own beside the pools, in tokens of the grant. A step is taken only where there are no tickets,
so who asks waits for one at most; a ticket that waits for room ends the measurement. Steps are as long as the one before
shows that they may be: probabilities over a large vocabulary take as long as the model does.

On a CPU attention sums f16 values in half precision in steps of fewer than 64 rows: that rounding is part of the figure.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

import numpy as np
from numpy.typing import NDArray

from orchestrator.engine.backend import Backend, BackendError, Run, TrialMemory
from orchestrator.engine.cache.pools import Pools
from orchestrator.engine.messages import KvChange, KvMeasured, MeasureKv, StopMeasuring, bytes_to_ids
from orchestrator.engine.scheduler.step import LOGIT_ROWS

REFERENCE = "f16"
FIRST_ROWS = 4
TOKENS_EACH = 3  # of the grant, for a token of the text: f16 and q8_0 take 2.9 of a q8_0 pool's, 1.5 of an f16 one's
Numbers = NDArray[np.float32]
Flags = NDArray[np.bool_]


class KvMeasuring:
    """One measurement at a time. `say` takes its messages; `clock` gives seconds."""

    def __init__(
        self, backend: Backend, pools: Pools, say: Callable[[KvMeasured], None], clock: Callable[[], float]
    ) -> None:
        self._backend = backend
        self._pools = pools
        self._say = say
        self._clock = clock
        self._now: KvComparison | None = None
        self._rows = FIRST_ROWS

    def handle(self, message: MeasureKv | StopMeasuring) -> None:
        if isinstance(message, MeasureKv):
            self._begin(message)
        elif self._now is not None and self._now.asked.call == message.call:
            self._end()

    def _begin(self, asked: MeasureKv) -> None:
        if self._now is not None:
            self._refuse(asked, "another measurement is running")
            return
        tokens = TOKENS_EACH * (len(asked.ids) // 4) + 2 * self._backend.info.pool_tokens
        if not self._pools.lend(tokens):
            free = max(0, self._pools.free())
            self._refuse(asked, f"{tokens:,} tokens of KV are needed beside what is held, and {free:,} are free")
            return
        try:
            self._now = KvComparison(asked, self._backend)
        except BackendError as error:
            self._pools.lend(-tokens)
            self._refuse(asked, str(error))
        else:
            self._now.undo.callback(self._pools.lend, -tokens)

    def left(self) -> bool:
        return self._now is not None

    def step(self, budget_ms: float) -> None:
        """Both memories' next rows, about as many as may be computed in so long."""
        now = self._now
        if now is None:
            return
        if self._pools.exceed_grant():
            self.give_way()
            return
        began = self._clock()
        try:
            found = now.step(self._rows)
        except BackendError as error:
            self._refuse(now.asked, str(error))
            self._end()
            return
        self._rows = next_rows(self._rows, 1000 * (self._clock() - began), budget_ms)
        self._say(found)
        if found.change is not None:
            self._end()

    def give_way(self) -> None:
        """Its memory is wanted for a question."""
        if self._now is not None:
            self._refuse(self._now.asked, "its memory was needed for a question: measure again when nobody asks")
            self._end()

    def _end(self) -> None:
        assert self._now is not None
        self._now.undo.close()
        self._now = None

    def _refuse(self, asked: MeasureKv, why: str) -> None:
        self._say(KvMeasured(asked.call, 0, len(asked.ids) // 4, refusal=why))


def next_rows(rows: int, took_ms: float, budget_ms: float) -> int:
    """Rows of the step behind one that took so long: they fit in the budget, and are at most twice as many."""
    most = min(2 * rows, LOGIT_ROWS)
    return most if most * took_ms <= rows * budget_ms else max(1, int(rows * budget_ms / took_ms))


class KvComparison:
    """Of one text. `undo` closes its memories. Raises BackendError where they cannot be had."""

    def __init__(self, asked: MeasureKv, backend: Backend) -> None:
        self.asked = asked
        self.done = 0
        self.undo = ExitStack()
        self._ids = bytes_to_ids(asked.ids)
        self._found: list[tuple[Numbers, Flags]] = []
        with ExitStack() as opened:
            self._memories = [
                opened.enter_context(closing(backend.open_trial(len(self._ids), kind)))
                for kind in (REFERENCE, asked.kind)
            ]
            self.undo = opened.pop_all()

    def step(self, rows: int) -> KvMeasured:
        """How far it is after as many further rows; behind the last with what was found."""
        tokens = self._ids[self.done : self.done + rows]
        reference, other = (predictions(memory, tokens, self.done) for memory in self._memories)
        self._found.append(compared(reference, other))
        self.done += len(tokens)
        change = change_of(self._found) if self.done == len(self._ids) else None
        return KvMeasured(self.asked.call, self.done, len(self._ids), change)


# -- the figures


def predictions(memory: TrialMemory, tokens: Sequence[int], start: int) -> Numbers:
    """Log-probabilities of what comes behind each token, a row each."""
    memory.decode([Run(0, at, [token], output=True) for at, token in enumerate(tokens, start)])
    return np.stack([log_softmax(memory.logits(row)) for row in range(len(tokens))])


def log_softmax(logits: Numbers) -> Numbers:
    shifted = logits - logits.max()
    found: Numbers = shifted - np.log(np.exp(shifted).sum(dtype=np.float64)).astype(np.float32)
    return found


def compared(reference: Numbers, other: Numbers) -> tuple[Numbers, Flags]:
    """Of each row: KL(reference ‖ other) in nats, from log-probabilities, and whether the likeliest token is another.
    Rounding may make the first less than 0, which it never is."""
    found: Numbers = (np.exp(reference) * (reference - other)).sum(1)
    return np.maximum(found, 0), reference.argmax(1) != other.argmax(1)


def change_of(found: Sequence[tuple[Numbers, Flags]]) -> KvChange:
    divergences, changed = (np.concatenate(part) for part in zip(*found, strict=True))
    worst = float(np.percentile(divergences, 99))
    return KvChange(len(divergences), float(divergences.mean()), worst, float(changed.mean()))
