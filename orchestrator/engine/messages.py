"""What crosses between the daemon and the engine's child process, and nothing else does.

Every message is a frozen value of plain Python; token ids travel as bytes of uint32 in native order.
The daemon owns ticket numbers; the child owns sequences, cells and llama.cpp.
They travel as `transport` has it.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.engine.calling import ToolRules
from orchestrator.engine.model import ModelInfo
from orchestrator.engine.snapshot import EngineSnapshot, Inspected

GREEDY_BELOW = 1e-3  # colder, logits divided by the temperature overflow and any token is drawn
# A child ends itself with this status when a call takes so many times its prediction, and at least so many seconds.
OVERRUN_STATUS = 86
OVERRUN_FACTOR = 10.0
OVERRUN_LEAST_SECONDS = 30.0
UNSAVED = "unsaved"  # a pool of which nothing is written to disk
ALONE = "unsaved, of ticket "  # what such a pool is called that one ticket has
MOST_SCHEMA_BYTES = 64 * 1024  # of a JSON schema, refused beyond by the API and by the child
Ids = bytes
ID_BYTES = 4


def ids_to_bytes(ids: Iterable[int]) -> Ids:
    return array("I", ids).tobytes()


def bytes_to_ids(data: Ids) -> "array[int]":
    ids = array("I")
    ids.frombytes(data)
    return ids


def same_beginning(one: str | Ids, other: str | Ids, unit: int = 1) -> int:
    """How many units, of so many places each, both begin with. Halves the stretch: a comparison of slices is quick."""
    low, high = 0, min(len(one), len(other)) // unit
    while low < high:
        middle = (low + high + 1) // 2
        if one[: middle * unit] == other[: middle * unit]:
            low = middle
        else:
            high = middle - 1
    return low


def well_formed(text: str) -> str:
    """Lone surrogates, which file names may carry and UTF-8 cannot, become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Urgency(StrEnum):
    INTERACTIVE = "interactive"
    BACKGROUND = "background"


class Tier(StrEnum):
    """Where the KV of a range of a prompt came from."""

    VRAM = "vram"
    RAM = "ram"
    DISK = "disk"
    REMOTE = "remote"  # a server's cache, whatever that is made of
    COMPUTED = "computed"


@dataclass(frozen=True)
class Grant:
    """What the governor allows, numbered: `cells` of KV over all pools, and one sequence's limit, `window`, in tokens.

    `prefill_share` of the time that answers leave of a round is for prompts beside them. It has no number: no plan is made
    by it.
    """

    number: int
    cells: int
    window: int
    prefill_share: float = 1.0


@dataclass(frozen=True)
class PutFloor:
    """Names the ids of a floor, so that they cross once. Computes nothing.

    Floors of one `pool` (generations of one codex) share a context and what their beginnings have in common. Those in
    UNSAVED are for as long as the child runs.
    """

    name: str
    ids: Ids
    pool: str = ""  # empty: a pool of its own


@dataclass(frozen=True)
class DropFloor:
    name: str


@dataclass(frozen=True)
class Sampling:
    """A temperature below GREEDY_BELOW is greedy. `schema` is a JSON schema's text, or empty. `calls`: of which tools, and
    how they are written. An answer with both fits the schema or makes calls.

    `logprobs`: the chosen token's log-probability and those of so many likeliest ones; None: none at all.
    """

    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    seed: int | None = None
    schema: str = ""
    logprobs: int | None = None
    calls: ToolRules | None = None

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def constrained(self) -> bool:
        """Whether a grammar says which tokens may come next."""
        return bool(self.schema) or self.calls is not None

    @property
    def schema_size(self) -> int:
        """Characters of all its schemas."""
        return len(self.schema) + sum(len(tool.parameters) for tool in (self.calls.tools if self.calls else ()))


@dataclass(frozen=True)
class Prepare:
    """Compile this beside all else: answers with the same constraints are to come."""

    sampling: Sampling


@dataclass(frozen=True)
class InferenceJob:
    """One inference: the floor by name, then `tail`. max_tokens 0 computes the prompt and generates nothing.

    `marks`: positions in the tail, ascending, at which the owner's other prompts are likely to part from this one.
    `uncached`: it is computed whole, in a context of its own: no cell and no checkpoint of anybody has a part in it, and
    nothing of it stays. What the cache gives is checked against it.
    """

    ticket: int
    floor: str
    tail: Ids
    owner: int  # uid; right of the floor one user's KV is never another's
    max_tokens: int
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    urgency: Urgency = Urgency.INTERACTIVE
    grant: int = 0  # number of the grant the plan was made under; 0: any
    replay: int = 0  # how often this job was handed in again after a crash
    marks: tuple[int, ...] = ()
    uncached: bool = False

    @property
    def is_in_advance(self) -> bool:
        """Whether nobody waits for it: a floor that is computed before somebody asks."""
        return self.urgency is Urgency.BACKGROUND and self.max_tokens == 0


@dataclass(frozen=True)
class Cancel:
    ticket: int


@dataclass(frozen=True)
class Encode:
    """Texts to ids. `control`: the text is the template's own and may hold control tokens."""

    call: int
    texts: tuple[str, ...]
    control: bool = False


@dataclass(frozen=True)
class Decode:
    call: int
    ids: Ids


@dataclass(frozen=True)
class PrefixMatch:
    """Asks what a job of these settings would find in the cache now; answered beside a running step."""

    call: int
    floor: str
    tail: Ids
    owner: int
    max_tokens: int = 0


@dataclass(frozen=True)
class Inspect:
    """Asks what the engine works at and what its caches hold; answered between two rounds."""

    call: int


@dataclass(frozen=True)
class FindFloor:
    """Asks for the files of a floor; answered once what is in cells of it is written."""

    call: int
    floor: str


@dataclass(frozen=True)
class AdoptFiles:
    """Checkpoints that were checked and lie beside their places are to be found by prompts from now on, all or none."""

    call: int
    paths: tuple[str, ...]


@dataclass(frozen=True)
class MeasureKv:
    """Asks what a type of KV changes of the predictions behind these ids, against f16; `KvMeasured` follow until one is
    the last, or `StopMeasuring`."""

    call: int
    ids: Ids
    kind: str


@dataclass(frozen=True)
class StopMeasuring:
    call: int


@dataclass(frozen=True)
class Shutdown:
    pass


@dataclass(frozen=True)
class ModelLoading:
    fraction: float  # of the model that is there, from 0 to 1
    why: str = ""  # what it waits for, where that is not the model's bytes


@dataclass(frozen=True)
class EngineReady:
    info: ModelInfo


@dataclass(frozen=True)
class LoadFailed:
    reason: str


@dataclass(frozen=True)
class Encoded:
    call: int
    ids: tuple[Ids, ...]


@dataclass(frozen=True)
class DecodedText:
    call: int
    text: str


@dataclass(frozen=True)
class CallFailed:
    """A call that cannot be answered now, though the engine is there."""

    call: int
    reason: str


@dataclass(frozen=True)
class Reuse:
    """Half-open range [start, end) of a prompt whose KV came from `tier`."""

    start: int
    end: int
    tier: Tier


@dataclass(frozen=True)
class Matched:
    """`reuse` covers [0, prompt) without gaps, as `Admitted` will report it, and `left`; what others compute now is to be
    computed."""

    call: int
    length: int  # tokens of the prompt that need no computing by anybody
    reuse: tuple[Reuse, ...]
    left: int = 0


@dataclass(frozen=True)
class KvChange:
    """What a type of KV changes behind so many tokens. `mean` and `worst` (99th percentile): Kullback-Leibler divergence of
    the predictions from those with f16, in nats; `changed`: share of places with another likeliest token."""

    tokens: int
    mean: float
    worst: float
    changed: float


@dataclass(frozen=True)
class KvMeasured:
    """How far a measurement is, in tokens. The last has what was found, or why there is nothing."""

    call: int
    done: int
    total: int
    change: KvChange | None = None
    refusal: str = ""


@dataclass(frozen=True)
class Admitted:
    """The ticket holds its cells; `reuse` covers [0, prompt) without gaps. `left`: tokens of what is computed that are on
    disk, and computed sooner than read. A server tells with the end of its answer what it reused: until then it is all, and
    the ticket's Completion has the tokens."""

    ticket: int
    prompt: int
    reuse: tuple[Reuse, ...]
    queue_ms: float
    left: int = 0


@dataclass(frozen=True)
class PrefillProgress:
    """How many prompt tokens of a ticket are in cells."""

    ticket: int
    done: int
    total: int


@dataclass(frozen=True)
class Chance:
    """A token, as bytes of text, and its natural log-probability by the model, before anything is cut off or drawn."""

    token: int
    text: bytes
    logprob: float


@dataclass(frozen=True)
class Chosen:
    """A token of an answer, and the likeliest ones in its place, likeliest first."""

    token: Chance
    likeliest: tuple[Chance, ...] = ()


@dataclass(frozen=True)
class AnswerDelta:
    """Text that became certain, and the tokens with text that were generated since the last. `chosen`: the tokens that this
    text came from."""

    ticket: int
    text: str
    ids: Ids
    chosen: tuple[Chosen, ...] = ()


class Outcome(StrEnum):
    DONE = "done"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a ticket ended."""

    STOP = "stop"
    LENGTH = "length"
    PREFILLED = "prefilled"
    CANCELLED = "cancelled"
    DROPPED = "dropped"  # its floor is not wanted any more
    WINDOW = "window"  # longer than one sequence may be
    CELLS = "cells"  # longer than all that was granted
    STALE = "stale"  # planned under an old grant and no longer fits: plan again
    UNKNOWN_FLOOR = "unknown_floor"
    TOKENS = "tokens"  # ids that the vocabulary does not have
    SCHEMA = "schema"  # a JSON schema outside the bounds
    SAMPLING = "sampling"  # a setting outside its range
    BUSY = "busy"  # a server takes no more for now
    ENGINE = "engine"  # the child died or llama.cpp failed; may be tried again


@dataclass(frozen=True)
class TicketTimings:
    """Milliseconds since the job arrived in the child; per token over the generated ones."""

    queue_ms: float = 0.0
    first_token_ms: float = 0.0
    total_ms: float = 0.0
    tokens_per_second: float = 0.0


@dataclass(frozen=True)
class Completion:
    """A ticket's one outcome. `computed` counts prompt tokens evaluated for it, `generated` tokens of the answer.

    `detail`: why it was not answered; of an answer what must be said with it.
    """

    ticket: int
    outcome: Outcome
    reason: Reason
    detail: str = ""
    prompt: int = 0
    cached: int = 0
    computed: int = 0
    generated: int = 0
    drafted: int = 0
    accepted: int = 0
    timings: TicketTimings = TicketTimings()


@dataclass(frozen=True)
class FloorFound:
    """The names of the files that hold the first `tokens` of a floor, in order."""

    call: int
    names: tuple[str, ...]
    tokens: int


@dataclass(frozen=True)
class FilesAdopted:
    """`refusal`: why they were not taken, or empty."""

    call: int
    refusal: str


FromChild = (
    ModelLoading
    | EngineReady
    | LoadFailed
    | Encoded
    | DecodedText
    | CallFailed
    | Matched
    | Inspected
    | FloorFound
    | FilesAdopted
    | KvMeasured
    | Admitted
    | PrefillProgress
    | AnswerDelta
    | Completion
    | EngineSnapshot
)
