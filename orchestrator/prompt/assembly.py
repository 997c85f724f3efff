"""From a prompt and its layout to token ids, block by block: the floor once, the rest for each question.

    literals of the layout   tokenised with control on, once each
    texts of items           tokenised as content, once per text
    ids of a block           those of its pieces, joined; ids of a prompt: those of its blocks, joined

So the tokens of the first k blocks are a prefix of the tokens of all. The floor, Identity and Codex, is one object that
is found by what it says; no question copies its ids. Knows no engine, no window and no budget.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import anyio

from formatters.blocks import FLOOR, ORDER, BlockKind, Prompt
from formatters.template import Literal, Piece, PromptPart, parts
from orchestrator.engine.token_ids import Ids
from orchestrator.prompt.assembled import Assembled, BlockIds, Floor, floor_name
from orchestrator.prompt.tokens import TokenCache

Layout = Sequence[Piece]  # as formatters.template.ChatTemplate.layout cuts it

REST = ORDER[len(FLOOR) :]
FLOORS_KEPT = 16  # more only costs joining ids again
TEXTS_AT_ONCE = 256  # in one call to the encoder: while a floor is tokenised, other calls get their turn between


class Assembler:
    """Assembles prompts for one model. `root` names all that its KV depends on; for another model make another one."""

    def __init__(self, tokens: TokenCache, root: str, floors_kept: int = FLOORS_KEPT) -> None:
        self._tokens = tokens
        self._root = root
        self._kept = floors_kept
        self._floors: OrderedDict[str, Floor] = OrderedDict()
        self._building = anyio.Lock()

    async def assemble(self, prompt: Prompt, layout: Layout, owner: int) -> Assembled:
        """The prompt's ids. LoreError when the engine that encodes is gone."""
        floor = await self.floor(prompt, layout)
        return Assembled(floor, await self._blocks(_parts(prompt, layout, REST), REST), owner)

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
        blocks = await self._blocks(_parts(prompt, layout, FLOOR), FLOOR)
        return Floor(floor_name(self._root, blocks), blocks)

    async def _blocks(self, texts: Sequence[PromptPart], kinds: Sequence[BlockKind]) -> tuple[BlockIds, ...]:
        gathered: dict[BlockKind, list[Ids]] = {kind: [] for kind in kinds}
        for part, ids in zip(texts, await self._encoded(texts), strict=True):
            gathered[part.block].append(ids)
        return tuple(BlockIds(kind, b"".join(ids)) for kind, ids in gathered.items())

    async def _encoded(self, texts: Sequence[PromptPart]) -> list[Ids]:
        """Ids of each part, in order."""
        ids = [b""] * len(texts)
        for control in (True, False):
            places = [place for place, part in enumerate(texts) if part.control is control]
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


def _parts(prompt: Prompt, layout: Layout, kinds: Sequence[BlockKind]) -> list[PromptPart]:
    return list(parts([piece for piece in layout if piece.block in kinds], prompt))


def _key_of(prompt: Prompt, layout: Layout) -> str:
    """What the floor says: the digests of its blocks, and the template's own text around them."""
    literals = [piece.text for piece in layout if isinstance(piece, Literal) and piece.block in FLOOR]
    said = "\0".join([*(prompt[kind].digest for kind in FLOOR), *literals])
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
