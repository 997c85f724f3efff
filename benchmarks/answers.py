"""What a benchmark asks of either engine, and what it measures of an answer. Times are seconds of the asking side."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

Ids = Sequence[int]
WITHIN_S = 600.0


class Refused(Exception):
    """The engine would not or could not answer; the message is its own."""


@dataclass(frozen=True)
class Answer:
    first_s: float  # from asking to the first token
    total_s: float
    gaps_s: tuple[float, ...]  # between tokens that followed each other
    cached: int  # prompt tokens that were not computed
    computed: int
    generated: int


class Running:
    """A question on its way. Whoever runs it marks tokens and ends it; whoever asked waits for either."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.marks: list[float] = []
        self.ids: list[int] = []  # of the answer, where the engine reports them, as its text
        self.text = ""
        self.drafts = (0, 0)  # tokens that were guessed, and those of them that were right
        self.first = threading.Event()
        self.outcome: Future[Answer] = Future()

    def tokens(self, count: int) -> None:
        """They arrived together."""
        self.marks.extend([time.monotonic()] * count)
        self.first.set()

    def done(self, cached: int, computed: int, generated: int) -> None:
        ended = time.monotonic()
        first = (self.marks or [ended])[0]
        gaps = tuple(after - before for before, after in zip(self.marks, self.marks[1:], strict=False))
        self.outcome.set_result(Answer(first - self.begun, ended - self.begun, gaps, cached, computed, generated))
        self.first.set()

    def failed(self, why: str) -> None:
        self.outcome.set_exception(Refused(why))
        self.first.set()

    def answer(self) -> Answer:
        """Raises Refused."""
        try:
            return self.outcome.result(WITHIN_S)
        except TimeoutError as error:
            raise Refused(f"no answer within {WITHIN_S:.0f} s") from error


class Engine(Protocol):
    """A running engine with one model."""

    def ask(self, floor: Ids, tail: Ids, max_tokens: int) -> Running:
        """Returns at once; the prompt is floor and tail joined."""
        ...

    def give_up(self, floor: Ids, tail: Ids, after_s: float) -> None:
        """Asks, and goes away after so many seconds without an answer."""
        ...

    def kv_bytes(self) -> int:
        """Bytes of KV that are held now."""
        ...

    def resident_bytes(self) -> int:
        """Memory that its process holds now: weights, KV, buffers, and what runs them."""
        ...

    def stop(self) -> None: ...
