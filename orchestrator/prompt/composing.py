"""From a turn's context to its prompt in every form: blocks of items, the exact text, token ids.

    formatters write the blocks → the chat template lays them out → the assembler tokenises → `Composed`

The ids of a text are computed once: of the floor's files, of a conversation's turns, of the template's own literals.
`broke_at` compares two prompts. Knows no budget, no engine and no vocabulary; who encodes is a port.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Protocol

import anyio

from formatters.blocks import FLOOR, ORDER, Block, BlockKind, BrokenPlugin, Item, Prompt
from formatters.context import TurnContext
from formatters.registry import Registry, write_prompt
from formatters.template import KEPT_TURNS, ChatTemplate, Literal, NoThink, Piece, Placement, PromptPart, joined, parts
from orchestrator.engine.messages import ID_BYTES, Ids
from orchestrator.wire.answers import Break

BUDGET = 64 * 2**20  # bytes of ids: 16 million tokens
ENTRY_BYTES = 150  # of a key and its place in the map, about
FLOORS_KEPT = 16  # more only costs joining ids again
TEXTS_AT_ONCE = 256  # in one call to the encoder: while a floor is tokenised, other calls get their turn between
REST = ORDER[len(FLOOR) :]
TEMPLATE = "template"
_ATTACHED = (
    "codex",
    "gist",
    "verbatim",
    "attachments",
)  # nodes of what comes before a question and is the same for the next one about it

Layout = Sequence[Piece]  # as formatters.template.ChatTemplate.layout cuts it
_Difference = tuple[BlockKind, str, str]  # the block, the item, and why


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
    """A whole prompt: a shared floor, and the four blocks right of it, which are `owner`'s (uid). `marks`: positions in the
    tail, as an `InferenceJob` has them."""

    floor: Floor
    rest: tuple[BlockIds, ...]
    owner: int
    marks: tuple[int, ...] = ()

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


@dataclass(frozen=True, eq=False)
class Composed:
    prompt: Prompt
    layout: Layout
    assembled: Assembled

    @property
    def text(self) -> str:
        """The exact text that the engine gets, for people."""
        return joined(self.layout, self.prompt)

    @cached_property
    def characters(self) -> int:
        """The text's length."""
        items = sum(len(item.text) for block in self.prompt.blocks for item in block.items)
        return items + sum(len(piece.text) for piece in self.layout if isinstance(piece, Literal))


class Composer:
    """Composes for one model: its chat template, the way that the probe found for it, and its tokens."""

    def __init__(
        self,
        registry: Registry,
        template: ChatTemplate,
        placement: Placement,
        assembler: "Assembler",
        on_failure: Callable[[BrokenPlugin], None] = lambda _: None,
    ) -> None:
        """`on_failure` is told of each plug-in that fails while a prompt is written."""
        self._registry = registry
        self._template = template
        self._placement = placement
        self._assembler = assembler
        self._on_failure = on_failure

    def write(self, turn: TurnContext) -> Prompt:
        """The six blocks of this turn. A broken plug-in's items are missing and named in `failures`."""
        prompt = write_prompt(turn, self._registry)
        for failure in prompt.failures:
            self._on_failure(failure)
        return prompt

    async def compose(self, turn: TurnContext, think: bool = True) -> Composed:
        """The turn's prompt, as it stands. Raises LoreError when the engine that encodes is gone."""
        prompt = self.write(turn)
        # The template is foreign code that runs over every message: of many, no other question waits for it.
        long = len(prompt.turns) + len(prompt.running) > KEPT_TURNS
        layout = await asyncio.to_thread(self._layout, prompt, think) if long else self._layout(prompt, think)
        return Composed(prompt, layout, await self._assembler.assemble(prompt, layout, turn.sigil.uid))

    def _layout(self, prompt: Prompt, think: bool) -> Layout:
        """The template cut for this prompt's turns. Thoughts are switched off only where that keeps the floor."""
        think = think or self._placement.no_think is NoThink.FLOOR
        way, results = self._placement.way, self._placement.results
        return self._template.layout(prompt.turns, running=prompt.running, way=way, results=results, think=think)


class Assembler:
    """Assembles prompts for one model. `root` names all that its KV depends on; for another model make another one."""

    def __init__(self, tokens: "TokenCache", root: str, floors_kept: int = FLOORS_KEPT) -> None:
        self._tokens = tokens
        self._root = root
        self._kept = floors_kept
        self._floors: OrderedDict[str, Floor] = OrderedDict()
        self._building = anyio.Lock()

    async def assemble(self, prompt: Prompt, layout: Layout, owner: int) -> Assembled:
        """The prompt's ids. LoreError when the engine that encodes is gone."""
        floor, texts = await self.floor(prompt, layout), _parts(prompt, layout, REST)
        ids = await self._encoded(texts)
        return Assembled(floor, blocks_of(texts, ids, REST), owner, marks_of(texts, ids, len(prompt.turns)))

    async def floor(self, prompt: Prompt, layout: Layout) -> Floor:
        """Identity and Codex of this prompt: as they are kept, or tokenised now. Who asks meanwhile waits for that."""
        key = _key_of(prompt, layout)
        if key not in self._floors:
            async with self._building:
                if key not in self._floors:
                    self._keep(key, await self._build(prompt, layout))
        self._floors.move_to_end(key)
        return self._floors[key]

    async def _build(self, prompt: Prompt, layout: Layout) -> Floor:
        texts = _parts(prompt, layout, FLOOR)
        blocks = blocks_of(texts, await self._encoded(texts), FLOOR)
        return Floor(floor_name(self._root, blocks), blocks)

    async def _encoded(self, texts: Sequence[PromptPart]) -> list[Ids]:
        """Ids of each part, in order; of an answer those that it was generated with, where they are known."""
        ids = [self._tokens.of_answer(part.text) if part.is_answer else b"" for part in texts]
        for control in (True, False):
            places = [place for place, part in enumerate(texts) if part.control is control and not ids[place]]
            for first in range(0, len(places), TEXTS_AT_ONCE):
                some = places[first : first + TEXTS_AT_ONCE]
                encoded = await self._tokens.encode([texts[place].text for place in some], control)
                for place, of_part in zip(some, encoded, strict=True):
                    ids[place] = of_part
        return ids

    def _keep(self, key: str, floor: Floor) -> None:
        self._floors[key] = floor
        while len(self._floors) > self._kept:
            self._floors.popitem(last=False)


def blocks_of(texts: Sequence[PromptPart], ids: Sequence[Ids], kinds: Sequence[BlockKind]) -> tuple[BlockIds, ...]:
    gathered: dict[BlockKind, list[Ids]] = {kind: [] for kind in kinds}
    for part, of_part in zip(texts, ids, strict=True):
        gathered[part.block].append(of_part)
    return tuple(BlockIds(kind, b"".join(of_kind)) for kind, of_kind in gathered.items())


def marks_of(texts: Sequence[PromptPart], ids: Sequence[Ids], turns: int) -> tuple[int, ...]:
    """Positions at which the owner's other prompts are likely to part from this one, which has so many earlier turns.

    Environment · Karma │ turns · attachments │ evidence · question │ what the template writes before an answer
    """
    begins, at, end = dict[int, int](), 0, 0
    for part, of_part in zip(texts, ids, strict=True):
        tokens = len(of_part) // ID_BYTES
        if part.item is not None:
            begins.setdefault(_stretch(part.block, part.item, turns), at)
            end = at + tokens
        at += tokens
    begins.pop(0, None)
    return tuple(sorted({*begins.values(), end}))


def _stretch(block: BlockKind, item: Item, turns: int) -> int:
    """Of the picture above, from 0."""
    if block is BlockKind.QUERY:
        return 2
    if block is not BlockKind.STATE:
        return 0
    return 1 if item.turn < turns or item.node in _ATTACHED else 2


def floor_name(root: str, blocks: Sequence[BlockIds]) -> str:
    """64 hex digits. `root` names all that KV depends on besides the ids."""
    digest = hashlib.sha256(root.encode())
    for block in blocks:
        digest.update(block.ids)
    return digest.hexdigest()


def _parts(prompt: Prompt, layout: Layout, kinds: Sequence[BlockKind]) -> list[PromptPart]:
    return list(parts([piece for piece in layout if piece.block in kinds], prompt))


def _key_of(prompt: Prompt, layout: Layout) -> str:
    """What the floor says: the digests of its blocks, and the template's own text around them."""
    literals = [piece.text for piece in layout if isinstance(piece, Literal) and piece.block in FLOOR]
    said = "\0".join([*(prompt[kind].digest for kind in FLOOR), *literals])
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


class Encoder(Protocol):
    """Turns texts into ids, one result for each, in order; changes nothing. LoreError when the engine is gone.

    `control`: the text is the template's own and may hold control tokens. Otherwise no text ever becomes one.
    """

    async def encode(self, texts: Sequence[str], control: bool) -> list[Ids]: ...


class TokenCache:
    """Ids by the digest of text and `control`, least recently used out first. Valid for one vocabulary: make a new one."""

    def __init__(self, encoder: Encoder, budget: int = BUDGET) -> None:
        self._encoder = encoder
        self._budget = budget
        self._held = 0
        self._ids: OrderedDict[bytes, Ids] = OrderedDict()

    async def encode(self, texts: Sequence[str], control: bool = False) -> list[Ids]:
        """Ids of each text. Texts that are not known yet cross to the encoder in one call, each once."""
        keys = [_key(text, control) for text in texts]
        known = {key: self._touched(key) for key in keys if key in self._ids}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            encoded = await self._encoder.encode(list(missing.values()), control)
            for key, ids in zip(missing, encoded, strict=True):
                known[key] = ids
                self._keep(key, ids)
        return [known[key] for key in keys]

    async def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as content, or as an answer."""
        answers = [self.of_answer(text) for text in texts]
        others = iter(await self.encode([text for text, ids in zip(texts, answers, strict=True) if not ids]))
        return [len(ids or next(others)) // ID_BYTES for ids in answers]

    def learn(self, text: str, ids: Ids) -> None:
        """The ids of a text as content, which somebody else has encoded."""
        self._keep(_key(text, control=False), ids)

    def learn_answer(self, text: str, ids: Ids) -> None:
        """The ids of a text that was generated: encoding it again need not give the same ones, nor control tokens."""
        self._keep(_ANSWER + _key(text, control=False), ids)

    def of_answer(self, text: str) -> Ids:
        """The ids that the text was generated with; empty where that is not known. Of an assistant's words alone: whatever
        else has the same text is content, and has no control tokens."""
        key = _ANSWER + _key(text, control=False)
        return self._touched(key) if key in self._ids else b""

    @property
    def held(self) -> int:
        """Bytes held, ids and entries."""
        return self._held

    def _touched(self, key: bytes) -> Ids:
        self._ids.move_to_end(key)
        return self._ids[key]

    def _keep(self, key: bytes, ids: Ids) -> None:
        self._forget(key)
        self._ids[key] = ids
        self._held += len(ids) + ENTRY_BYTES
        while self._held > self._budget and len(self._ids) > 1:
            self._forget(next(iter(self._ids)))

    def _forget(self, key: bytes) -> None:
        old = self._ids.pop(key, None)
        if old is not None:
            self._held -= len(old) + ENTRY_BYTES


_ANSWER = b"a"


def _key(text: str, control: bool) -> bytes:
    """surrogatepass: a text may hold a lone surrogate that a client's JSON escaped; it still has one name."""
    return hashlib.sha256((b"c" if control else b"t") + text.encode("utf-8", "surrogatepass")).digest()


# -- where a prompt leaves the one before it


def broke_at(before: Composed, now: Composed, why: Mapping[BlockKind, str] | None = None) -> Break | None:
    """The first place that differs, or None. `why`: reasons that the caller knows better, by block."""
    found = _in_floor(before, now) or _behind_floor(before, now)
    if found is None:
        return None
    block, item, reason = found
    return Break(block=block.value, item=item, why=(why or {}).get(block) or reason)


def _in_floor(before: Composed, now: Composed) -> _Difference | None:
    for kind in FLOOR:
        old, new = before.prompt[kind], now.prompt[kind]
        if old.digest != new.digest:
            return _first_item(old, new)
    return None


def _first_item(old: Block, new: Block) -> _Difference:
    pairs = zip_longest(old.items, new.items)
    item, follows = next((one, other) for one, other in pairs if one is None or other is None or one.text != other.text)
    if item is None:
        assert follows is not None
        return new.kind, follows.source, "added"
    return new.kind, item.source, "changed" if follows is not None else "removed"


def _behind_floor(before: Composed, now: Composed) -> _Difference | None:
    for old, new in zip_longest(_rest(before), _rest(now)):
        if old is None:
            return None
        if new is None:
            return old.block, part_name(old), "removed"
        if old.text != new.text or old.control is not new.control:
            if ORDER.index(old.block) < ORDER.index(new.block):  # a block that has nothing any more
                return old.block, part_name(old), "removed"
            reason = "the chat template writes a closed turn otherwise" if new.control else "changed"
            return new.block, part_name(new), reason
    return None


def _rest(composed: Composed) -> Iterable[PromptPart]:
    return parts([piece for piece in composed.layout if piece.block not in FLOOR], composed.prompt)


def part_name(part: PromptPart) -> str:
    """Where a stretch of the prompt came from, for people."""
    return part.item.source or part.item.key if part.item else TEMPLATE
