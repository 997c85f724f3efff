"""From a generation to a codex state: its coverages counted, one of them decided, its pieces written.

    whole, where it has a chance ─▶ exact tokens ─┐
    skeletons, where they have ─▶ exact tokens ───┴▶ decide_coverage ─▶ levels of files ─▶ pieces ─▶ the log behind them

A codex that does not fit whole is never held in memory whole. Counting and parsing find what an earlier run left: after a
restart an unchanged codex is built from what is remembered. Changes on disk are applied to a state here, too.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from codex.catalog.databases import SqliteBytesCache
from codex.catalog.generations import Codex, FileEntry, Generation
from codex.citations import Files
from codex.documents import Document, lines
from codex.errors import ArchiveDamaged, CodexError, SourceError
from codex.following.amendments import Amendment as Entry
from codex.following.amendments import ChangeKind, effective
from codex.library import Library, SampledFile, draw_sample
from codex.outline.coverage import FileLevel
from codex.progress import OnProgress, progress_at, silent
from codex.trees.lore_file import LoreFile
from formatters.blocks import BlockKind
from formatters.context import AmendmentView, CodexPiece, CodexView, IdentityView, SigilView, TurnContext
from formatters.writers import LINES_HEADING, piece_text
from orchestrator.codices.coverages import (
    BYTES_PER_TOKEN,
    GRADED_BYTES,
    LEAST_SKELETON,
    Grading,
    Outlined,
    Outliner,
    churn_of,
    most_telling,
    whole_piece,
    whole_tokens,
)
from orchestrator.codices.known_lines import CHANGED_PARTS, changed_parts, moved_heads
from orchestrator.codices.state import CodexState
from orchestrator.codices.state_store import BroughtLevels, CodexStateStore, FrozenLevels
from orchestrator.errors import InvalidRequest, NotReady, OverBudget, translated
from orchestrator.model.chat_model import ChatModel
from orchestrator.prompt.composing import Floor
from orchestrator.prompt.coverage import (
    Coverage,
    CoverageDecision,
    CoverageSettings,
    CoverageSizes,
    FloorRoom,
    coverage_named,
    decide_coverage,
    limit_of,
)

log = logging.getLogger("lorekeep.codices")

Made = TypeVar("Made")
CHARACTERS = 4  # of a token of code, about
COUNT_PAGE = 256
# A codex of more bytes than this many for each token of the floor's limit does not fit whole, whatever its vocabulary; its
# tokens are then estimated from a sample instead of being counted for minutes.
HOPELESS = 32


@dataclass(frozen=True)
class _BuildSource:
    """What a codex state is built from. `settings`, `rebase_share`: the usual ones with the codex's own laid over them;
    `forced`: the coverage that a user, a setting or the codex names, in this order."""

    codex: Codex
    generation: Generation
    room: FloorRoom
    settings: CoverageSettings
    rebase_share: float | None
    forced: Coverage | None
    notices: tuple[str, ...]
    outlined: dict[str, Outlined] = field(default_factory=dict)  # by path, filled as files are needed

    def view(self, coverage: str, pieces: tuple[CodexPiece, ...]) -> CodexView:
        tree = self.generation.state
        return CodexView(
            name=self.codex.name,
            root=self.codex.roots[0],
            generation=self.generation.number,
            branch=tree.branch or "",
            revision=tree.revision or "",
            tier=coverage,
            pieces=pieces,
        )

    def state(
        self,
        view: CodexView,
        tokens: int,
        sizes: CoverageSizes,
        decision: CoverageDecision,
        why_not_forced: tuple[str, ...],
        chunks: int,
    ) -> CodexState:
        return CodexState(
            name=self.codex.name,
            roots=self.codex.roots,
            generation=self.generation,
            view=view,
            sizes=sizes,
            decision=decision,
            tokens=tokens,
            chunks=chunks,
            notices=(*self.notices, *why_not_forced),
            settings=self.settings,
            rebase_share=self.rebase_share,
            forced=None if why_not_forced else self.forced,
        )


@dataclass(frozen=True)
class CodexBuilder:
    """Builds codex states. `model` gives the loaded chat model and raises NotReady before, `chunks` how much of a codex the
    archive holds."""

    library: Library
    model: Callable[[], ChatModel]
    settings: CoverageSettings
    remembered: SqliteBytesCache
    store: CodexStateStore
    chunks: Callable[[str], int]

    async def built(
        self,
        name: str,
        room: FloorRoom,
        identity: IdentityView,
        report: OnProgress,
        forced: Coverage | None = None,
        keep: CoverageDecision | None = None,
        *,
        strict: bool = False,
    ) -> CodexState:
        """The newest generation, with the coverage for this room, the one that a user or a setting forces, or a decision to
        keep. `strict`: a forced coverage that does not fit is refused; else what fits is taken, with a notice.

        Raises CodexError and LoreError.
        """
        source = await asyncio.to_thread(self._source, name, room, forced, keep)
        whole = await asyncio.to_thread(self._whole, source)
        full = await self._count(whole, identity, report) if whole else await asyncio.to_thread(self._about, source)
        heading = await self._count(source.view("none", ()), identity, silent)
        skeletons = await asyncio.to_thread(self._skeleton_tokens, source, report)
        skeleton = None if skeletons is None else heading + skeletons
        sizes = CoverageSizes(full, skeleton, full if skeleton is None else skeleton, () if whole else ("full",))
        await asyncio.to_thread(self.store.sized, name, sizes)
        decision, why_not = (keep, ()) if keep else decided(sizes, room, source.settings, source.forced, strict=strict)
        brought = await asyncio.to_thread(self._brought, source, decision.coverage)
        if decision.coverage is Coverage.FULL and whole is not None:
            view, tokens = whole, full
        elif decision.coverage is Coverage.NONE:
            view, tokens = source.view("none", ()), heading
        else:
            view, tokens, decision = await self._graded(source, whole, identity, decision, heading, report)
        chunks = await asyncio.to_thread(self.chunks, name)
        log = await asyncio.to_thread(self.library.catalog.amendments, name, source.generation.number)
        state = source.state(view, tokens, sizes, decision, why_not, chunks)
        if brought is not None:
            told = await asyncio.to_thread(self._why_of_no_use, source, brought, decision)
            state = replace(state, notices=(*state.notices, *told))
        return await self.amended(state, log)

    async def with_changes(self, name: str, state: CodexState | None) -> tuple[CodexState | None, int]:
        """What changed on disk, in the codex's log, its archive and its state; and how many entries of the log are new.
        None for a codex that is not built yet: it will be, with this log. The codex's `disk` lock is held meanwhile.

        Raises CodexError, Conflict while another process loads it.
        """
        number = None if state is None else state.generation.number
        follow = partial(self.library.follow, name, number, count=self._tokens_of, changed_definitions=changed_parts)
        with translated():
            followed = await mended(follow)
            chunks = await asyncio.to_thread(self.chunks, name) if state is not None else 0
        if state is None:
            return None, 0
        now = replace(state, tree=followed.state)
        if followed.new:
            now = await self.amended(replace(now, chunks=chunks), followed.log)
        return now, followed.new

    def _tokens_of(self, text: str) -> int:
        """In a worker thread; about, before the model is known."""
        try:
            return self.model().count_in_thread([text])[0]
        except NotReady:
            return len(text) // CHARACTERS

    async def floor(self, codex: CodexView, identity: IdentityView) -> Floor:
        """What the prompts of all questions about it begin with."""
        return (await self.model().composer.compose(nobodys_turn(codex, identity))).assembled.floor

    async def amended(self, state: CodexState, log: tuple[Entry, ...]) -> CodexState:
        """The same with this log behind its pieces."""
        moved = moved_heads(state.view.pieces, log)
        views = tuple(amendment_of(entry, moved.get(entry.number, "")) for entry in log)
        counts = await self.model().tokens.count([one.text for one in views])
        digests = effective(state.generation.digests(), log)
        files = Files(Lines(digests, self.library.catalog.document_by_digest))
        view = state.view.model_copy(update={"amendments": views})
        return replace(state, view=view, log=log, digests=digests, files=files, amended=sum(counts))

    def _source(
        self, name: str, room: FloorRoom, forced: Coverage | None, keep: CoverageDecision | None
    ) -> "_BuildSource":
        """A `.lore.toml` that cannot be used is named in a notice and has no effect."""
        codex, generation = self.library.catalog.codex(name), self.library.catalog.generation(name)
        notices = generation.notices
        try:
            own = self.library.lore_file(name)
            wished = own_tier(own)
        except (SourceError, InvalidRequest) as fault:
            own, wished, notices = LoreFile(), None, (*notices, f"{fault}")
        settings, share = settings_of(own, self.settings), own.numbers.get("rebase_share")
        return _BuildSource(codex, generation, room, settings, share, None if keep else forced or wished, notices)

    # -- as a floor that was computed elsewhere

    def _brought(self, source: "_BuildSource", coverage: Coverage) -> BroughtLevels | None:
        """How that was made, if one came. Of the same files in this coverage its levels become those of this generation,
        where they fit."""
        name, number = source.codex.name, source.generation.number
        brought = self.store.expected(name)
        if (
            brought is not None
            and brought.made.levels
            and brought.coverage == coverage
            and brought.is_of(source.generation)
        ):
            self.store.freeze(name, number, coverage, brought.made)
        return brought

    def _why_of_no_use(
        self, source: "_BuildSource", brought: BroughtLevels, decision: CoverageDecision
    ) -> tuple[str, ...]:
        """Why its prefix is computed here all the same, or a part of it. It is expected no more but in another coverage."""
        name, coverage = source.codex.name, decision.coverage
        if not brought.is_of(source.generation):
            self.store.expect_no_more(name)
            return ("the imported prefix is of other files: from the first that differs it is computed",)
        if brought.coverage != coverage:
            was = brought.coverage
            told = f"the imported prefix has the coverage {was}, and this codex has {coverage} here: it is computed"
            return (f"{told}; `lore load` with --tier {was} asks for the imported one",)
        self.store.expect_no_more(name)
        levels = self.store.frozen(name, source.generation.number).get(coverage)
        if not brought.made.levels or levels == brought.made:
            return ()
        told = (
            f"the imported prefix was made for {brought.made.tokens:,} tokens, and here it may have {decision.tokens:,}"
        )
        return (f"{told}: it shows other files, and is computed from the first that differs",)

    # -- whole

    def _whole(self, source: "_BuildSource") -> CodexView | None:
        """None for a codex that is far too large to be in the floor whole."""
        generation = source.generation
        hopeless = generation.bytes > HOPELESS * max(1, limit_of(source.room, source.settings))
        if hopeless and source.forced is not Coverage.FULL:
            return None
        return source.view("full", tuple(map(whole_piece, self.library.catalog.documents(generation.entries))))

    def _about(self, source: "_BuildSource") -> int:
        """Tokens of a codex that is too large to be counted, from a sample of its files."""
        generation = source.generation
        chosen = draw_sample(generation.entries, lambda one: one.path, lambda one: one.size)
        documents = self.library.catalog.documents(chosen)
        sample = [SampledFile(entry.path, entry.size, one.text) for entry, one in zip(chosen, documents, strict=True)]
        return whole_tokens(sample, len(generation.entries), generation.bytes, self.model().count_in_thread)

    async def _count(self, view: CodexView, identity: IdentityView, report: OnProgress) -> int:
        """Tokens of the Codex block as it will be written; its ids are at hand afterwards."""
        prompt = self.model().composer.write(nobodys_turn(view, identity))
        texts = [item.text for item in prompt[BlockKind.CODEX].items]
        began, total = time.monotonic(), 0
        report(progress_at("count", 0, len(texts), 0.0))
        for first in range(0, len(texts), COUNT_PAGE):
            total += sum(await self.model().counts(texts[first : first + COUNT_PAGE]))
            report(progress_at("count", min(first + COUNT_PAGE, len(texts)), len(texts), time.monotonic() - began))
        return total

    # -- between none and full

    def _skeleton_tokens(self, source: "_BuildSource", report: OnProgress) -> int | None:
        """Of all files; None for a codex that is far too large."""
        generation = source.generation
        hopeless = generation.bytes / BYTES_PER_TOKEN * LEAST_SKELETON > limit_of(source.room, source.settings)
        if hopeless and source.forced is not Coverage.SKELETON:
            return None
        known = self._outlined(source, generation.entries, report)
        texts = [piece_text(known[one.path].piece(one.path, FileLevel.SKELETON)) for one in generation.entries]
        return sum(self.model().count_in_thread(texts))

    async def _graded(
        self,
        source: "_BuildSource",
        whole: CodexView | None,
        identity: IdentityView,
        decision: CoverageDecision,
        heading: int,
        report: OnProgress,
    ) -> tuple[CodexView, int, CoverageDecision]:
        """Each file at its level: those that are frozen with the generation, as long as they are kept."""
        codex, number, coverage = source.codex.name, source.generation.number, decision.coverage
        frozen = self.store.frozen(codex, number).get(coverage)
        if frozen is not None:
            view = await asyncio.to_thread(self._view_at, source, coverage, frozen.levels, report)
            tokens = await self._count(view, identity, silent)
            if decision.keeps(tokens, frozen.tokens):
                return view, tokens, replace(decision, tokens=min(frozen.tokens, decision.limit))
        chosen = await asyncio.to_thread(self._levels, source, whole, decision, heading, report)
        self.store.freeze(codex, number, coverage, FrozenLevels(chosen, decision.tokens))
        view = await asyncio.to_thread(self._view_at, source, coverage, chosen, report)
        return view, await self._count(view, identity, silent), decision

    def _levels(
        self,
        source: "_BuildSource",
        whole: CodexView | None,
        decision: CoverageDecision,
        heading: int,
        report: OnProgress,
    ) -> str:
        """A digit for each file of the generation, in its order."""
        name, count, documents = source.codex.name, self.model().count_in_thread, self.library.catalog.documents
        entries, is_map = source.generation.entries, decision.coverage is Coverage.MAP
        graded = most_telling(entries, GRADED_BYTES) if is_map else entries
        known = self._outlined(source, graded, report)
        bodies = count([piece_text(one) for one in whole.pieces]) if whole and not is_map else []
        counted = {one.path: tokens for one, tokens in zip(entries, bodies, strict=bool(bodies))}
        grading = Grading(graded, known, counted, self._churn(name), self.store.touched(name), count, documents)
        budget, lines = decision.tokens - heading, sum(count([LINES_HEADING]))
        chosen = grading.of_map(budget, lines) if is_map else grading.with_whole_files(budget)
        return "".join(str(int(chosen.get(one.path, FileLevel.NOTHING))) for one in entries)

    def _view_at(self, source: "_BuildSource", coverage: Coverage, chosen: str, report: OnProgress) -> CodexView:
        entries = source.generation.entries
        shown = [(one, FileLevel(int(digit))) for one, digit in zip(entries, chosen, strict=True) if digit != "0"]
        known = self._outlined(source, [one for one, level in shown if level is not FileLevel.FULL], report)
        whole = self.library.catalog.documents([one for one, level in shown if level is FileLevel.FULL])
        bodies = {one.path: whole_piece(one) for one in whole}
        pieces = (bodies.get(one.path) or known[one.path].piece(one.path, level) for one, level in shown)
        return source.view("map" if coverage is Coverage.MAP else "skeleton", tuple(pieces))

    def _outlined(
        self, source: "_BuildSource", entries: Sequence[FileEntry], report: OnProgress
    ) -> Mapping[str, Outlined]:
        """Of these files, each read once for a build."""
        missing = [one for one in entries if one.path not in source.outlined]
        outliner = Outliner(self.library.catalog.documents, self.remembered)
        source.outlined.update(outliner.outlined(missing, report) if missing else {})
        return {one.path: source.outlined[one.path] for one in entries}

    def _churn(self, name: str) -> Mapping[str, int]:
        try:
            return churn_of(self.library.histories(name))
        except SourceError:
            return {}


def nobodys_turn(codex: CodexView, identity: IdentityView) -> TurnContext:
    """A question that nobody asked: its prompt begins as those of all questions about the codex."""
    return TurnContext(identity=identity, sigil=SigilView(name="owner", uid=0), codex=codex, query="?")


def decided(
    sizes: CoverageSizes,
    room: FloorRoom,
    settings: CoverageSettings,
    forced: Coverage | None = None,
    *,
    strict: bool = False,
) -> tuple[CoverageDecision, tuple[str, ...]]:
    """The coverage, and why it is not the one that was forced. Raises OverBudget, InvalidRequest where that is strict."""
    try:
        return decide_coverage(sizes, room, settings, forced), ()
    except (OverBudget, InvalidRequest) as fault:
        if strict:
            raise
        return decide_coverage(sizes, room, settings), (fault.message,)


async def mended(work: Callable[[], Made]) -> Made:
    """The work done in a thread; again where it found the archive damaged, which is then empty and built anew."""
    try:
        return await asyncio.to_thread(work)
    except ArchiveDamaged as damage:
        log.warning("%s", damage)
        return await asyncio.to_thread(work)


def settings_of(own: LoreFile, usual: CoverageSettings) -> CoverageSettings:
    """The usual settings with what the codex says of itself laid over them."""
    said = own.numbers
    return CoverageSettings(
        overhead_share=said.get("overhead", usual.overhead_share),
        window_share=said.get("window_share", usual.window_share),
        map_window=int(said.get("map_window", usual.map_window)),
        map_share=said.get("map_share", usual.map_share),
        step_up_share=said.get("step_up_share", usual.step_up_share),
    )


def own_tier(own: LoreFile) -> Coverage | None:
    """The coverage that the codex asks for. Raises InvalidRequest for one that does not exist."""
    return None if own.tier in (None, "auto") else coverage_named(own.tier or "")


def amendment_of(entry: Entry, moved: str = "") -> AmendmentView:
    """A log entry as the model reads it; `moved`: where lines that the floor lists are now."""
    said = {
        ChangeKind.REMOVED: "This file was removed.",
        ChangeKind.RESTORED: "This file is again as it stands above.",
        ChangeKind.MOVED: f"This is the file that was {entry.source}.",
    }.get(entry.kind, "")
    parts = "\n".join([CHANGED_PARTS, entry.text, *([moved] if moved else [])])
    text = said or (entry.text if entry.whole else parts)
    return AmendmentView(number=entry.number, path=entry.path, text=text)


class Lines(Mapping[str, int]):
    """Lines by path, counted when a file is cited. `digests`: of files as they are; `read` gives a document."""

    def __init__(self, digests: Mapping[str, str], read: Callable[[str, str], Document]) -> None:
        self._digests = digests
        self._read = read
        self._counted: dict[str, int] = {}

    def __getitem__(self, path: str) -> int:
        if path not in self._counted:
            digest = self._digests[path]
            try:
                self._counted[path] = len(lines(self._read(path, digest).text))
            except CodexError:
                return 0  # no longer kept: nothing can be said of its lines, so no place in it is vouched for
        return self._counted[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._digests)

    def __len__(self) -> int:
        return len(self._digests)

    def __contains__(self, path: object) -> bool:
        return path in self._digests
