"""The shape of a prompt: six blocks in one order, each a sequence of items.

The order makes a prompt's prefix reusable: the more often a block changes, the further right it is. This module does not
know the contents of items, the model or the tokenizer.

    Identity │ Codex ┊ Environment │ Karma │ State │ Query
    └─── floor ─────┘                        turns 0 … n-1, then turn n's artifacts and, as Query, its words
"""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from operator import attrgetter


class FormatterError(Exception):
    """Base of all faults of this package."""


class InvalidPrompt(FormatterError):
    """Items, blocks or turns that break a law of the prompt; the message names the law and the item."""


class BrokenPlugin(FormatterError):
    """A plug-in that cannot be loaded, registered or used. `distribution` is the package that brought it."""

    def __init__(self, distribution: str, entry: str, reason: str) -> None:
        super().__init__(f"{entry!r} of {distribution}: {reason}")
        self.distribution = distribution
        self.entry = entry
        self.reason = reason


class TemplateRefused(FormatterError):
    """A chat template that cannot be compiled, refuses these messages, or cannot be cut at our seams."""


class BlockKind(StrEnum):
    """The six blocks; the order of definition is their order in every prompt."""

    IDENTITY = "identity"
    CODEX = "codex"
    ENVIRONMENT = "environment"
    KARMA = "karma"
    STATE = "state"
    QUERY = "query"


ORDER: tuple[BlockKind, ...] = tuple(BlockKind)
FLOOR: tuple[BlockKind, ...] = ORDER[:2]
_TURNING = (BlockKind.STATE, BlockKind.QUERY)


class Role(StrEnum):
    """Who speaks in a turn."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True)
class Item:
    """The smallest piece of a prompt that is added and removed as a whole.

    key:      its place among the items of its turn, compared as text; fixed when the item is made.
    text:     without a role it ends with a newline, so that no words merge at a seam; with a role it is a speaker's own
              words, unchanged, and the chat template ends it.
    source:   where it came from, for traces: a path, `path:start-end`, a plug-in's name.
    turn:     State: the turn it belongs to, from 0. Query: 0 is the question, then what the running turn appended.
              Elsewhere 0.
    node:     the name the relevance gate knows it by.
    pinned:   never cut.
    """

    key: str
    text: str
    source: str = ""
    role: Role | None = None
    turn: int = 0
    node: str = ""
    pinned: bool = False

    @cached_property
    def digest(self) -> str:
        """sha256 of the text, 64 hex digits. Equal digests give equal tokens."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


_PLACE = attrgetter("turn", "key")


@dataclass(frozen=True)
class Block:
    """Items of one kind, ordered by turn and key whatever order they came in. Raises InvalidPrompt."""

    kind: BlockKind
    items: tuple[Item, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(sorted(self.items, key=_PLACE)))
        _refuse_twins(self)
        for item in self.items:
            _refuse_unclean(self.kind, item)

    @cached_property
    def text(self) -> str:
        return "".join(item.text for item in self.items)

    @cached_property
    def digest(self) -> str:
        """sha256 over the items' digests, 64 hex digits."""
        return hashlib.sha256("".join(item.digest for item in self.items).encode()).hexdigest()


@dataclass(frozen=True)
class Prompt:
    """All six blocks in their order; all but Query may be empty. Raises InvalidPrompt.

    failures: plug-ins whose items are missing here, each with its reason.
    turns:    who spoke in each earlier turn; what a chat template's layout needs.
    """

    blocks: tuple[Block, ...]
    failures: tuple[BrokenPlugin, ...] = field(default=(), compare=False)
    turns: tuple[Role, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        kinds = tuple(block.kind for block in self.blocks)
        if kinds != ORDER:
            raise InvalidPrompt(f"a prompt has all six blocks in their order, not {', '.join(kinds) or 'none'}")
        _refuse_gaps(self[BlockKind.QUERY])
        object.__setattr__(self, "turns", turns_of(self[BlockKind.STATE]))

    def __getitem__(self, kind: BlockKind) -> Block:
        return self.blocks[ORDER.index(kind)]

    @cached_property
    def running(self) -> tuple[Role, ...]:
        """Who spoke since the question: the assistant's tool calls and their results."""
        return tuple(item.role for item in self[BlockKind.QUERY].items if item.role)[1:]

    def at(self, kind: BlockKind, turn: int = 0) -> tuple[Item, ...]:
        """The items that fill one slot of a layout."""
        return self._slots.get((kind, turn), ())

    @cached_property
    def _slots(self) -> dict[tuple[BlockKind, int], tuple[Item, ...]]:
        whole = {(block.kind, 0): block.items for block in self.blocks if block.kind not in _TURNING}
        gathered: dict[tuple[BlockKind, int], list[Item]] = {}
        for kind in _TURNING:
            for item in self[kind].items:
                gathered.setdefault((kind, item.turn), []).append(item)
        return whole | {slot: tuple(items) for slot, items in gathered.items()}


def turns_of(state: Block) -> tuple[Role, ...]:
    """Who spoke in each turn of a State block. Raises InvalidPrompt unless it is one speaker a turn, from 0, last in it."""
    spoken = [item for item in state.items if item.role]
    if [item.turn for item in spoken] != list(range(len(spoken))):
        raise InvalidPrompt(f"State needs one speaker a turn from 0, not in turns {[item.turn for item in spoken]}")
    for item in state.items:
        if item.turn > len(spoken) or (item.turn < len(spoken) and item.key > spoken[item.turn].key):
            raise InvalidPrompt(f"State item {item.key!r} comes after the words of turn {min(item.turn, len(spoken))}")
    return tuple(item.role for item in spoken if item.role)


def _refuse_gaps(query: Block) -> None:
    turns = [item.turn for item in query.items]
    if not turns or turns != list(range(len(turns))):
        raise InvalidPrompt("Query is the question as turn 0, then one item a turn without gaps")


def _refuse_twins(block: Block) -> None:
    for item, following in zip(block.items, block.items[1:], strict=False):
        if item.key == following.key and item.turn == following.turn:
            raise InvalidPrompt(f"two items of {block.kind} have the key {item.key!r}: their order would be chance")


def _refuse_unclean(kind: BlockKind, item: Item) -> None:
    if kind in _TURNING:
        if kind is BlockKind.QUERY and item.role is None:
            raise InvalidPrompt(
                f"Query holds only words of speakers: item {item.key!r} has no role; artifacts go to State"
            )
    elif item.role is not None or item.turn != 0:
        raise InvalidPrompt(f"item {item.key!r} of {kind} has a role or a turn: only State and Query have them")
    if item.role is None and not item.text.endswith("\n"):
        raise InvalidPrompt(f"item {item.key!r} of {kind} must end with a newline, or words merge at the seam")
