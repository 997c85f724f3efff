"""The port to the thing that computes: what the loop may ask of llama.cpp, or of the stand-in of the tests.

One writer calls all of it. Positions of a sequence are contiguous from 0; ranges are half-open. A `Memory` belongs to who
opened it, until `close`.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.engine.messages import Sampling
from orchestrator.engine.model import ModelInfo

if TYPE_CHECKING:  # the daemon imports this too, and numpy starts threads
    import numpy as np
    from numpy.typing import NDArray

# Entered around each call that may not return, with the seconds that it should take; `nullcontext` watches nothing.
Watch = Callable[[float], AbstractContextManager[object]]


class BackendError(Exception):
    """llama.cpp refused or failed; the message says what it was asked for. The memory it concerned is not to be trusted."""


class SchemaRefused(BackendError):
    """A JSON schema outside the bounds, or one that no grammar can be made of."""


@dataclass(frozen=True)
class Run:
    """Consecutive tokens of one sequence, from position `start` on: a row of the step each. `output`: whether logits are
    wanted for the last one."""

    sequence: int
    start: int
    tokens: Sequence[int]
    output: bool


class Sampler(Protocol):
    """Chooses tokens for one ticket; remembers what it accepted (penalties, grammar, random state)."""

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        """Lets penalties see the end of the prompt."""
        ...

    def forced(self) -> Sequence[int]:
        """The tokens that follow whatever the model says, as far as they are known; none without a grammar."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class SamplerMade:
    """The sampler of a ticket whose answer is constrained, or why it gets none."""

    ticket: int
    sampler: Sampler | SchemaRefused


@dataclass(frozen=True)
class Sampled:
    """`spelled`: how a control token that a call of a tool is written with is spelled; no other has a text."""

    token: int
    end: bool  # end of generation
    logprobs: tuple[tuple[int, float], ...] = ()
    spelled: bytes = b""


class Memory(Protocol):
    """KV cells of one pool: `cells` tokens over at most `sequences` sequences that may share cells."""

    cells: int
    sequences: int
    footprint: int  # bytes of KV or of states
    buffers: int  # bytes beside them: for what is computed, in the memory that counts

    def decode(self, runs: Sequence[Run]) -> None:
        """Computes a step; its rows are numbered through all runs. Room and positions are the caller's duty; raises
        BackendError when it fails all the same."""
        ...

    def sample(self, row: int, sampler: Sampler) -> Sampled:
        """Chooses and accepts the token after `row` of the last step."""
        ...

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        """Makes `target` a member of the cells of `source` in [start, end). No data moves."""
        ...

    def remove(self, sequence: int, start: int, end: int) -> None:
        """Takes `sequence` out of its cells in [start, end); end -1 is its end. Cells without members are free."""
        ...

    def save(self, sequence: int) -> bytes:
        """The state of all cells of a sequence. Changes nothing."""
        ...

    def restore(self, sequence: int, state: bytes) -> int:
        """Loads a state into an empty sequence; returns how many cells it has now, 0 when it did not fit or was refused.

        Where memory cannot be cut it is the position after the last one: the state of a range ends where the range does.
        """
        ...

    def length(self, sequence: int) -> int:
        """The position after a sequence's last cell; 0 for an empty one."""
        ...

    def count(self, sequence: int) -> int:
        """How many cells a sequence has: its length, unless there is a hole. Where memory cannot be cut, its length."""
        ...

    def close(self) -> None: ...


class TrialMemory(Protocol):
    """KV cells of one sequence, to look at predictions. `decode` as of a `Memory`."""

    def decode(self, runs: Sequence[Run]) -> None: ...

    def logits(self, row: int) -> "NDArray[np.float32]":
        """Of the token behind `row` of the last step, one for each word; until the next step."""
        ...

    def close(self) -> None: ...


class Backend(Protocol):
    """A loaded model."""

    info: ModelInfo
    threads: int  # that compute on the CPU; may be set at any time and holds from the next step on
    tokens: int  # of the vocabulary: every id is below it

    @property
    def binds(self) -> bool:
        """Whether what binds answers to schemas was made: it takes memory from the first of them on."""
        ...

    def open(self, cells: int, sequences: int) -> Memory:
        """`sequences` of the memory may be fewer. Raises BackendError when it cannot be had."""
        ...

    def open_trial(self, cells: int, kv_type: str) -> TrialMemory:
        """With keys and values of this type, whatever the pools have. Raises BackendError when it cannot be had."""
        ...

    def sampler(self, sampling: Sampling) -> Sampler:
        """A constrained one may take a second, unless that is `compiled`. Raises SchemaRefused."""
        ...

    def unbound(self, sampling: Sampling) -> Sampler:
        """Whose calls can be read, as the control tokens that they are written with have their text, and are not bound."""
        ...

    def compiled(self, sampling: Sampling) -> bool:
        """Whether it is known what came of compiling its schema and its calls."""
        ...

    def encode(self, texts: Sequence[str], *, control: bool) -> list[list[int]]:
        """May be called from another thread while a step runs; so may `pieces`, `sampler`, `unbound` and `compiled`."""
        ...

    def pieces(self, ids: Sequence[int]) -> bytes: ...

    def close(self) -> None: ...
