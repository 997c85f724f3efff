"""A prompt as it is kept after its turn, and how two kept prompts differ.

    chunks_of        a prompt as texts that later turns have again: each block of the floor whole, each later item by itself
    difference_of    block by block, and the first place where two prompts part

A floor is megabytes and the same for many turns. What follows it grows at its end. So each text is kept once, under its
digest. Does not know where chunks are kept.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby, zip_longest

from formatters.blocks import FLOOR, ORDER, BlockKind
from formatters.template import PromptPart, parts
from orchestrator.engine.messages import same_beginning
from orchestrator.prompt.composing import Composed, part_name


@dataclass(frozen=True)
class RecordedItem:
    """One stretch of a prompt: its block, where it came from, its text."""

    block: BlockKind
    name: str
    text: str


@dataclass(frozen=True)
class PromptChunk:
    """Neighbouring stretches of one block, kept together. Equal digests (sha256, 32 bytes) have equal items."""

    block: BlockKind
    parts: tuple[PromptPart, ...]

    @property
    def digest(self) -> bytes:
        named = [(part_name(part), _digest(part)) for part in self.parts]
        return hashlib.sha256(json.dumps([self.block, named]).encode()).digest()

    @property
    def body(self) -> bytes:
        """What `items_of` reads. ASCII, so that a lone surrogate survives."""
        return json.dumps([self.block, [(part_name(part), part.text) for part in self.parts]]).encode()


def chunks_of(composed: Composed) -> Iterator[PromptChunk]:
    """The whole prompt, in order: the texts of all items, joined, are `composed.text`."""
    numbered = enumerate(parts(composed.layout, composed.prompt))
    for (block, _), some in groupby(numbered, lambda one: (one[1].block, one[1].block in FLOOR or one[0])):
        yield PromptChunk(block, tuple(part for _, part in some))


def items_of(body: bytes) -> Iterator[RecordedItem]:
    """The items of a chunk's body."""
    block, items = json.loads(body)
    yield from (RecordedItem(BlockKind(block), name, text) for name, text in items)


def _digest(part: PromptPart) -> str:
    if part.item is not None:
        return part.item.digest
    return hashlib.sha256(part.text.encode("utf-8", "surrogatepass")).hexdigest()


# -- what differs


@dataclass(frozen=True)
class BlockDifference:
    """What a block has otherwise in the second prompt, by the names of its items. Sizes are characters."""

    block: BlockKind
    before: int
    after: int
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        return not (self.changed or self.added or self.removed)


@dataclass(frozen=True)
class PromptDifference:
    """All six blocks in order; the item and the character at which the prompts part, None where neither differs."""

    blocks: tuple[BlockDifference, ...]
    item: RecordedItem | None = None
    at: int = 0  # characters that both begin with


def difference_of(before: Sequence[RecordedItem], after: Sequence[RecordedItem]) -> PromptDifference:
    """What `after` has otherwise."""
    blocks = tuple(_in_block(kind, before, after) for kind in ORDER)
    at = 0
    for old, new in zip_longest(before, after):
        if old == new:
            at += len(old.text) if old is not None else 0
            continue
        if old is not None and new is not None and old.text == new.text:  # the same words from elsewhere
            at += len(old.text)
            continue
        both = same_beginning(old.text, new.text) if old is not None and new is not None else 0
        return PromptDifference(blocks, new if new is not None else old, at + both)
    return PromptDifference(blocks)


def _in_block(kind: BlockKind, before: Sequence[RecordedItem], after: Sequence[RecordedItem]) -> BlockDifference:
    old, new = ([one for one in prompt if one.block is kind] for prompt in (before, after))
    gone: list[str] = []
    came: list[str] = []
    for what, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what != "equal":
            gone += [one.name for one in old[start:end]]
            came += [one.name for one in new[first:last]]
    changed = tuple(dict.fromkeys(name for name in gone if name in came))
    return BlockDifference(
        kind,
        sum(len(one.text) for one in old),
        sum(len(one.text) for one in new),
        changed,
        tuple(name for name in came if name not in changed),
        tuple(name for name in gone if name not in changed),
    )
