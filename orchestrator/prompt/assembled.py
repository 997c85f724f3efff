"""A prompt as token ids: six blocks, of which the first two, the floor, are shared by all who ask about a codex."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from formatters.blocks import BlockKind
from orchestrator.engine.token_ids import Ids
from orchestrator.prompt.tokens import ID_BYTES


@dataclass(frozen=True, eq=False, slots=True)
class BlockIds:
    kind: BlockKind
    ids: Ids

    @property
    def tokens(self) -> int:
        return len(self.ids) // ID_BYTES


@dataclass(frozen=True, eq=False)
class Floor:
    """Identity and Codex. `name` follows from what the KV depends on and from the ids: equal names, equal ids."""

    name: str
    blocks: tuple[BlockIds, ...]

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


def floor_name(root: str, blocks: Sequence[BlockIds]) -> str:
    """64 hex digits. `root` names all that KV depends on besides the ids."""
    digest = hashlib.sha256(root.encode())
    for block in blocks:
        digest.update(block.ids)
    return digest.hexdigest()
