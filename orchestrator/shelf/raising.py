"""From a generation to a codex that stands: its tiers counted, one of them decided, its pieces written.

documents ─▶ full pieces ─▶ exact tokens ─┐
          └▶ skeleton, map ─▶ exact tokens ┴▶ decide_tier ─▶ pieces of that tier
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codex.amendments import Amendment as Entry
from codex.amendments import Told
from codex.documents import Document
from codex.generations import Generation
from codex.library import Library
from codex.progress import Progress, progress_at
from formatters.blocks import BlockKind
from formatters.context import Amendment, CodexPiece, CodexView, IdentityView, SigilView, TurnContext
from orchestrator.context.composing import context_of
from orchestrator.context.tier import FloorTier, Room, TierDecision, TierSettings, TierSizes, decide_tier, limit_of
from orchestrator.shelf.standing import Standing
from orchestrator.shelf.tiers import Drafts, drafts, pieces
from orchestrator.voice import Voice

Report = Callable[[Progress], None]
COUNT_PAGE = 256
# A codex of more bytes than this many for each token of the floor's limit cannot stand whole, whatever its vocabulary; its
# tokens are then estimated from its bytes instead of being counted for minutes.
HOPELESS = 32
BYTES_PER_TOKEN = 4


@dataclass(frozen=True)
class Raising:
    """How codices are raised; `clock` gives seconds for rates."""

    library: Library
    voice: Voice
    settings: TierSettings
    clock: Callable[[], float]

    async def raised(
        self,
        name: str,
        identity: IdentityView,
        room: Room,
        forced: FloorTier | None,
        chunks: int,
        report: Report,
        keep: TierDecision | None = None,
    ) -> Standing:
        """The newest generation in the tier for this room, or in the one to `keep`. Raises CodexError and LoreError."""
        codex = await asyncio.to_thread(self.library.codex, name)
        generation = await asyncio.to_thread(self.library.generation, name)
        documents = await asyncio.to_thread(lambda: list(self.library.documents(generation)))
        log = await asyncio.to_thread(self.library.amendments, name)
        whole = self.view(codex.name, codex.roots, generation, FloorTier.FULL, pieces_of(documents), log)
        full = await self._count_full(whole, generation, room, report)
        made = await self._drafts(documents, room)
        sizes = TierSizes(full, made.skeleton_tokens, made.map_tokens)
        decision = keep or decide_tier(sizes, room, self.settings, forced)
        view = whole
        if decision.tier is not FloorTier.FULL:
            below = await asyncio.to_thread(pieces, made, decision, self.voice.count_in_thread)
            view = self.view(codex.name, codex.roots, generation, decision.tier, below, log)
        tokens = full if view is whole else sum(await self.voice.counts(self.texts(view, identity)))
        return Standing(
            name=name,
            roots=codex.roots,
            generation=generation,
            view=view,
            sizes=sizes,
            decision=decision,
            tokens=tokens,
            chunks=chunks,
            log=log,
            lines={one.path: one.text.count("\n") + (not one.text.endswith("\n")) for one in documents},
            notices=generation.notices,
        )

    async def _drafts(self, documents: Sequence[Document], room: Room) -> Drafts:
        return await asyncio.to_thread(drafts, documents, room, self.voice.count_in_thread, self.settings)

    def view(
        self,
        name: str,
        roots: Sequence[str],
        generation: Generation,
        tier: FloorTier,
        pieces: tuple[CodexPiece, ...],
        log: Sequence[Entry],
    ) -> CodexView:
        return CodexView(
            name=name,
            root=roots[0],
            generation=generation.number,
            branch=generation.state.branch or "",
            revision=generation.state.revision or "",
            tier=_word(tier),
            pieces=pieces,
            amendments=tuple(amendment_of(entry) for entry in log),
        )

    def texts(self, view: CodexView, identity: IdentityView) -> list[str]:
        """The texts of the Codex block as it will be written."""
        turn = TurnContext(identity=identity, sigil=SigilView(name="owner", uid=0), codex=view, query="?")
        return [item.text for item in self.voice.composer.write(context_of(turn))[BlockKind.CODEX].items]

    async def _count_full(self, whole: CodexView, generation: Generation, room: Room, report: Report) -> int:
        if generation.bytes > HOPELESS * max(1, limit_of(room, self.settings)):
            return generation.bytes // BYTES_PER_TOKEN
        texts = self.texts(whole, IdentityView(name="count"))
        began, total = self.clock(), 0
        report(progress_at("count", 0, len(texts), 0.0))
        for first in range(0, len(texts), COUNT_PAGE):
            total += sum(await self.voice.counts(texts[first : first + COUNT_PAGE]))
            report(progress_at("count", min(first + COUNT_PAGE, len(texts)), len(texts), self.clock() - began))
        return total


def pieces_of(documents: Sequence[Document]) -> tuple[CodexPiece, ...]:
    return tuple(CodexPiece(path=" ".join(one.path.splitlines()), text=one.text) for one in documents)


def amendment_of(entry: Entry) -> Amendment:
    """A log entry as the model is told of it."""
    said = {
        Told.REMOVED: "This file was removed.",
        Told.RESTORED: "This file is again as it stands above.",
        Told.MOVED: f"This is the file that was {entry.source}.",
    }.get(entry.told, "")
    told = said or (entry.text if entry.whole else f"Changed definitions:\n{entry.text}")
    return Amendment(number=entry.number, path=entry.path, text=told)


def _word(tier: FloorTier) -> str:
    return "skeleton" if tier is FloorTier.SKELETON else tier.value
