"""A backend under test, and runs of its sequences: what the fake and llama.cpp are held to alike."""

from dataclasses import dataclass, field

from orchestrator.engine.backend import Backend, Memory, Run, Sampled
from orchestrator.engine.messages import Sampling

CHUNK = 64
KEYS = ("return", "import", "class", "print", "while", "assert", "yield", "with", "from", "lambda", "raise", "for")
TEXT = "\n".join(f"door {n} is opened by {KEYS[n % 12]} and key {7919 * n % 99991}" for n in range(60))
QUESTION, OTHER = "\ndoor 3 is opened by", "\nSo, what was in the cellar? It was door 9 is opened by"


@dataclass
class Subject:
    """A backend and how near two of its views must be to count as the same: `tolerance` in nats, None for exactly."""

    backend: Backend
    tolerance: float | None
    floor: list[int]
    tail: list[int]
    other: list[int]
    _fresh: dict[tuple[int, ...], Sampled] = field(default_factory=dict)

    def open(self, cells: int = 1024, sequences: int = 8) -> Memory:
        return self.backend.open(cells, sequences)

    def view(self, memory: Memory, row: int) -> Sampled:
        sampler = self.backend.sampler(Sampling(logprobs=16))
        try:
            return memory.sample(row, sampler)
        finally:
            sampler.close()

    def fresh(self, ids: list[int]) -> Sampled:
        """From an empty memory. Computed once: what it is held against never is."""
        if (key := tuple(ids)) not in self._fresh:
            memory = self.open(max(1024, len(ids)))
            try:
                self._fresh[key] = self.view(memory, feed(memory, 0, ids))
            finally:
                memory.close()
        return self._fresh[key]

    def same(self, one: Sampled, other: Sampled) -> bool:
        if self.tolerance is None:
            return one == other
        mine, yours = dict(one.logprobs), dict(other.logprobs)
        both = mine.keys() & yours.keys()
        return len(both) >= 12 and all(abs(mine[token] - yours[token]) <= self.tolerance for token in both)

    def answer(self, memory: Memory, sequence: int, at: int, row: int, sampling: Sampling, most: int = 12) -> list[int]:
        sampler, ids = self.backend.sampler(sampling), list[int]()
        try:
            while len(ids) < most and not (sampled := memory.sample(row, sampler)).end:
                ids.append(sampled.token)
                row = feed(memory, sequence, [sampled.token], at + len(ids) - 1)
            return ids
        finally:
            sampler.close()


def feed(memory: Memory, sequence: int, ids: list[int], start: int = 0, chunk: int = CHUNK) -> int:
    """Computes a run of a sequence; returns the row of its last token."""
    for at in range(0, len(ids), chunk):
        memory.decode([Run(sequence, start + at, ids[at : at + chunk], output=at + chunk >= len(ids))])
    return (len(ids) - 1) % chunk


def subject(backend: Backend, tolerance: float | None, length: int) -> Subject:
    floor, tail, other = backend.encode([TEXT, QUESTION, OTHER], control=False)
    return Subject(backend, tolerance, floor[:length], tail, other)
