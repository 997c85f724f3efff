"""What the engine says of itself: `EngineSnapshot` is published after each step, `Inspected` is asked for."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

# Upper bounds, in seconds, of what steps are counted by: from an answer's on a GPU to a full one on two cores.
STEP_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class PoolState:
    """Cells of one pool, in tokens: free + reserved + evictable + leased = size."""

    name: str
    size: int
    free: int
    reserved: int
    evictable: int
    leased: int
    sequences: int
    bytes: int
    buffers: int = 0  # bytes beside


@dataclass(frozen=True)
class TicketState:
    """A ticket between two rounds. `place`: 0 while it runs, else its place among those that wait, from 1. Of `prompt`
    tokens `done` are in cells, `computed` for this ticket. `most`: tokens of its answer; 0: computed in advance. Seconds
    since it arrived, holds its cells, has its first token; 0 where it came to none."""

    ticket: int
    floor: str
    phase: str
    place: int
    background: bool
    prompt: int
    done: int
    computed: int
    generated: int
    most: int
    waited_s: float
    running_s: float
    answering_s: float


@dataclass(frozen=True)
class CacheBranch:
    """Tokens behind `start`, with no fork in them, below the branch of less `depth` before it. `private`: right of the
    floor, one user's. `computed`: of them, in cells. `used`: by a ticket now."""

    depth: int
    start: int
    tokens: int
    computed: int
    private: bool
    used: bool


@dataclass(frozen=True)
class CacheContent:
    """What a pool holds. `floors` and `conversations`: tokens in cells, all of them; `left_out`: branches without a row."""

    name: str
    size: int
    bytes: int
    floors: int
    conversations: int
    branches: tuple[CacheBranch, ...]
    left_out: int


@dataclass(frozen=True)
class Inspected:
    call: int
    tickets: tuple[TicketState, ...]
    caches: tuple[CacheContent, ...]


@dataclass(frozen=True)
class StepTimes:
    """Steps by how long the backend took: counts by bucket of STEP_BOUNDS_S, the last one above them all; their sum."""

    counts: tuple[int, ...] = (0,) * (len(STEP_BOUNDS_S) + 1)
    seconds: float = 0.0

    def and_one(self, seconds: float) -> "StepTimes":
        at = bisect_left(STEP_BOUNDS_S, seconds)
        return StepTimes((*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :]), self.seconds + seconds)


@dataclass(frozen=True)
class ServerState:
    """A server that computes for us. `state`: up, drained (it takes nothing new) or down; `reason` says why. `running` and
    `waiting`: requests of all its clients, None where it does not tell. `cache`: the share of its cache that is in use."""

    url: str
    kind: str
    state: str
    reason: str = ""
    running: int | None = None
    waiting: int | None = None
    cache: float | None = None


@dataclass(frozen=True)
class EngineSnapshot:
    """The engine after a step. Immutable; published, never asked for. `servers`: those that compute in its place."""

    grant: int
    pools: tuple[PoolState, ...] = ()
    running: int = 0
    prefills: int = 0  # of those that run: their prompts are being restored or computed
    waiting: int = 0
    prefilling: str = ""
    kv_bytes: int = 0
    binds: bool = False  # what binds answers to schemas is in memory
    steps: int = 0
    prefill_share: float = 1.0
    counters: Mapping[str, float] = field(default_factory=dict)
    step_times: StepTimes = StepTimes()
    servers: tuple[ServerState, ...] = ()
    pressure: float | None = None  # of the servers together, of 1.0 that they can take; None: the memory here counts
