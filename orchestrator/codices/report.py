"""What people and scripts read of a codex: what `load --json` and `codex show` print. Pure."""

from collections.abc import Mapping

from codex.catalog.generations import Codex
from codex.progress import CodexProgress
from orchestrator.codices.floors import FloorFigures
from orchestrator.codices.freshness import Freshness
from orchestrator.codices.state import CodexState
from orchestrator.prompt.coverage import CoverageDecision, CoverageSizes
from orchestrator.wire.replies import CodexReport, FloorProgress, ProgressEvent, TierTokens


def codex_report(
    standing: CodexState,
    kv_bytes_per_token: float,
    fresh: Freshness,
    floor: FloorFigures | None,
) -> CodexReport:
    """`fresh` says how true it is to its files; `floor` how large its floor is and how far."""
    generation, decision, state = standing.now(), standing.decision, standing.state()
    return CodexReport(
        name=standing.name,
        root=standing.roots[0],
        roots=tuple(standing.roots),
        generation=generation.number,
        generation_reason=generation.why,
        branch=generation.state.branch,
        revision=generation.state.revision,
        state=generation.label(),
        files=len(generation.entries),
        skipped=dict(generation.skipped),
        notices=tuple(standing.notices),
        tokens=tokens_of(standing.sizes),
        estimated=tuple(standing.sizes.estimated),
        tier=decision.coverage.value,
        tier_tokens=standing.tokens,
        floor_tokens=floor.tokens if floor else 0,
        reason=decision.reason,
        hint=decision.hint,
        kv_bytes=round(standing.tokens * kv_bytes_per_token),
        disk_bytes=generation.bytes,
        indexed_chunks=standing.chunks,
        amendments=len(standing.log),
        changed_files=tuple(state.amendments),
        removed_files=tuple(state.removed),
        amended_tokens=standing.amended,
        fresh=fresh.word,
        fresh_notice=fresh.notice,
        unseen=fresh.blind,
        prefill=FloorProgress(done=floor.done, total=floor.tokens, left_s=floor.left_s)
        if floor and floor.done is not None
        else None,
    )


def bare_report(codex: Codex, fresh: Freshness) -> CodexReport:
    """A codex without a state: not raised yet, or never loaded to its end."""
    return CodexReport(
        name=codex.name,
        root=codex.roots[0],
        roots=tuple(codex.roots),
        generation=codex.newest,
        tier=None,
        fresh=fresh.word,
        fresh_notice=fresh.notice,
        unseen=fresh.blind,
    )


def survey_report(
    name: str,
    roots: tuple[str, ...],
    files: int,
    skipped: Mapping[str, int],
    notices: tuple[str, ...],
    sizes: CoverageSizes,
    decision: CoverageDecision,
    kv_bytes_per_token: float,
    how: str,
) -> CodexReport:
    """What a load would take; nothing of it is in the catalog."""
    return CodexReport(
        name=name,
        root=roots[0],
        roots=tuple(roots),
        generation=0,
        files=files,
        skipped=dict(skipped),
        notices=tuple(notices),
        tokens=tokens_of(sizes),
        estimated=tuple(sizes.estimated),
        tier=decision.coverage.value,
        reason=f"{decision.reason}; {how}",
        hint=decision.hint,
        kv_bytes=round(decision.tokens * kv_bytes_per_token),
        indexed_chunks=0,
    )


def tokens_of(sizes: CoverageSizes) -> TierTokens:
    return TierTokens(full=sizes.full, skeleton=sizes.skeleton, map=sizes.map)


def progress_event(progress: CodexProgress, name: str | None = None) -> ProgressEvent:
    """`name`: the codex that is loaded."""
    return ProgressEvent(
        event="progress",
        phase=progress.phase,
        done=progress.done,
        total=progress.total,
        rate=round(progress.rate, 1),
        eta_s=None if progress.eta_s is None else round(progress.eta_s, 1),
        **({} if name is None else {"name": name}),
    )
