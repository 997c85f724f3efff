"""A prompt as token ids: six blocks, of which the first two, the floor, are shared by all who ask about a codex."""

from dataclasses import dataclass
from functools import cached_property

from formatters.blocks import BlockKind
from orchestrator.context.names import Segment, chained, salted
from orchestrator.context.tokens import ID_BYTES
from orchestrator.engine.messages import Ids


@dataclass(frozen=True, eq=False, slots=True)
class BlockIds:
    kind: BlockKind
    ids: Ids

    @property
    def tokens(self) -> int:
        return len(self.ids) // ID_BYTES


@dataclass(frozen=True, eq=False)
class Floor:
    """Identity and Codex. `name` is the last segment's: on the same root, equal names hold equal ids."""

    name: str
    blocks: tuple[BlockIds, ...]
    segments: tuple[Segment, ...]

    @cached_property
    def ids(self) -> Ids:
        """All ids of the floor, to cross to the engine once."""
        return b"".join(block.ids for block in self.blocks)

    @cached_property
    def tokens(self) -> int:
        return sum(block.tokens for block in self.blocks)


@dataclass(frozen=True, eq=False)
class Assembled:
    """A whole prompt: a shared floor, and the four blocks right of it, which are `owner`'s (uid)."""

    floor: Floor
    rest: tuple[BlockIds, ...]
    owner: int

    @property
    def blocks(self) -> tuple[BlockIds, ...]:
        """All six, in order."""
        return (*self.floor.blocks, *self.rest)

    @cached_property
    def tail(self) -> Ids:
        """The ids right of the floor."""
        return b"".join(block.ids for block in self.rest)

    @cached_property
    def tokens(self) -> int:
        return self.floor.tokens + len(self.tail) // ID_BYTES

    @cached_property
    def seams(self) -> tuple[tuple[BlockKind, int, int], ...]:
        """Each block's half-open range of positions."""
        seams, start = [], 0
        for block in self.blocks:
            seams.append((block.kind, start, start + block.tokens))
            start += block.tokens
        return tuple(seams)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Names of all segments, the floor's first."""
        rest = tuple(block.ids for block in self.rest)
        return (*self.floor.segments, *chained(salted(self.floor.name, self.owner), rest, self.floor.tokens))
