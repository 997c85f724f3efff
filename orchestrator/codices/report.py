"""What users and scripts read of a codex: what `load --json` and `codex show` print."""

from dataclasses import dataclass, replace

from codex.catalog.generations import Codex
from codex.progress import CodexProgress
from formatters.writers import piece_text
from orchestrator.codices.coverages import Count, one_line
from orchestrator.codices.floors import Floors
from orchestrator.codices.freshness import FreshnessGauge
from orchestrator.codices.state import CodexState
from orchestrator.engine.client.client import EngineClient
from orchestrator.prompt.coverage import CoverageDecision, CoverageSizes
from orchestrator.wire.replies import CodexCosts, CodexReport, CoverageTokens, FileTokens, FloorProgress, ProgressEvent

CHANGE = "change"  # the level of a changed file that stands behind the others


@dataclass(frozen=True)
class CodexReports:
    client: EngineClient
    floors: Floors
    gauge: FreshnessGauge

    @property
    def kv_bytes_per_token(self) -> float:
        """0.0 before the model is known."""
        info = self.client.info
        return info.kv_bytes_per_token if info else 0.0

    def of(self, codex: CodexState, *, loading: bool = True) -> CodexReport:
        """`loading`: a load that runs is reported."""
        generation, decision, changes = codex.generation_now(), codex.decision, codex.in_answer()
        fresh, floor = self.gauge.of(codex.name), self.floors.figures(codex.name)
        fresh = fresh if loading else replace(fresh, loading="")
        return CodexReport(
            name=codex.name,
            root=codex.roots[0],
            roots=codex.roots,
            generation=generation.number,
            generation_reason=generation.why,
            branch=generation.state.branch,
            revision=generation.state.revision,
            state=generation.label(),
            files=len(generation.entries),
            skipped=dict(generation.skipped),
            notices=codex.notices,
            tokens=tokens_of(codex.sizes, decision),
            estimated=codex.sizes.estimated,
            tier=decision.coverage.value,
            tier_tokens=codex.tokens_now,
            floor_tokens=floor.tokens if floor else 0,
            reason=decision.reason,
            hint=decision.hint,
            kv_bytes=round(codex.tokens_now * self.kv_bytes_per_token),
            disk_bytes=generation.bytes,
            indexed_chunks=codex.chunks,
            amendments=len(codex.log),
            changed_files=changes.amendments,
            removed_files=changes.removed,
            amended_tokens=codex.amended,
            fresh=fresh.word,
            fresh_notice=fresh.notice,
            unseen=fresh.unseen,
            prefill=FloorProgress(done=floor.done, total=floor.tokens, left_s=floor.left_s)
            if floor and floor.done is not None
            else None,
        )

    def costs(self, codex: CodexState, count: Count, most: int) -> CodexCosts:
        """What its files take of the floor, the dearest first, `most` of them. For a worker thread."""
        pieces, changes = codex.view.pieces, codex.view.amendments
        counted = count([*map(piece_text, pieces), *(one.text for one in changes)])
        named = [*((one.path, one.kind) for one in pieces), *((one.path, CHANGE) for one in changes)]
        costs = zip(named, counted, strict=True)
        rows = (FileTokens(path=path, level=level, tokens=tokens) for (path, level), tokens in costs)
        dearest = sorted(rows, key=lambda one: (-one.tokens, one.path))
        return CodexCosts(
            codex=codex.name,
            tier=codex.decision.coverage.value,
            tokens=codex.tokens_now,
            kv_bytes_per_token=self.kv_bytes_per_token,
            files=tuple(dearest[:most]),
            left_out=max(0, len(dearest) - most),
            outside=len({one_line(entry.path) for entry in codex.generation.entries} - {path for path, _ in named}),
        )

    def bare(self, codex: Codex) -> CodexReport:
        """A codex without a state: not built yet, or never loaded to its end."""
        fresh = self.gauge.of(codex.name, loaded=codex.newest is not None)
        return CodexReport(
            name=codex.name,
            root=codex.roots[0],
            roots=codex.roots,
            generation=codex.newest,
            tier=None,
            fresh=fresh.word,
            fresh_notice=fresh.notice,
            unseen=fresh.unseen,
        )


def tokens_of(sizes: CoverageSizes, decision: CoverageDecision) -> CoverageTokens:
    most = None if sizes.map is None else min(sizes.map, decision.map_limit)
    return CoverageTokens(full=sizes.full, skeleton=sizes.skeleton, map=most)


def progress_event(progress: CodexProgress, name: str = "") -> ProgressEvent:
    """`name`: the codex that is loaded."""
    return ProgressEvent.of(
        progress,
        event="progress",
        rate=round(progress.rate, 1),
        eta_s=None if progress.eta_s is None else round(progress.eta_s, 1),
        name=name,
    )
