"""A codex that stands, as people and scripts are told of it: what `load --json` and `codex show` print. Pure."""

from collections.abc import Mapping
from typing import Any

from codex.catalog.generations import Codex
from codex.progress import CodexProgress
from orchestrator.codices.floors import FloorFigures
from orchestrator.codices.freshness import Freshness
from orchestrator.codices.state import CodexState
from orchestrator.prompt.coverage import CoverageDecision, CoverageSizes

Event = Mapping[str, Any]


def codex_report(
    standing: CodexState,
    kv_bytes_per_token: float,
    fresh: Freshness,
    floor: FloorFigures | None,
) -> dict[str, Any]:
    """`fresh` says how true it is to its files; `floor` how large its floor is and how far."""
    generation, decision, state = standing.now(), standing.decision, standing.state()
    return {
        "name": standing.name,
        "root": standing.roots[0],
        "roots": list(standing.roots),
        "generation": generation.number,
        "generation_reason": generation.why,
        "branch": generation.state.branch,
        "revision": generation.state.revision,
        "state": generation.label(),
        "files": len(generation.entries),
        "skipped": dict(generation.skipped),
        "notices": list(standing.notices),
        "tokens": tokens_of(standing.sizes),
        "estimated": list(standing.sizes.estimated),
        "tier": decision.coverage.value,
        "tier_tokens": standing.tokens,
        "floor_tokens": floor.tokens if floor else 0,
        "reason": decision.reason,
        "hint": decision.hint,
        "kv_bytes": round(standing.tokens * kv_bytes_per_token),
        "disk_bytes": generation.bytes,
        "indexed_chunks": standing.chunks,
        "amendments": len(standing.log),
        "changed_files": list(state.amendments),
        "removed_files": list(state.removed),
        "amended_tokens": standing.amended,
        **fresh_report(fresh),
        "prefill": {"done": floor.done, "total": floor.tokens, "left_s": floor.left_s}
        if floor and floor.done is not None
        else None,
    }


def bare_report(codex: Codex, fresh: Freshness) -> dict[str, Any]:
    """A codex that does not stand: not raised yet, or never loaded to its end."""
    roots = {"root": codex.roots[0], "roots": list(codex.roots)}
    plain = {"name": codex.name, **roots, "generation": codex.newest, "tier": None}
    return plain | fresh_report(fresh)


def fresh_report(fresh: Freshness) -> dict[str, Any]:
    """`fresh` is a word or a few, `fresh_notice` what should be known of it, `unseen` what a search may not see now."""
    return {"fresh": fresh.word, "fresh_notice": fresh.notice, "unseen": fresh.blind}


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
) -> dict[str, Any]:
    """The same shape for what a load would take; nothing of it stands."""
    return {
        "name": name,
        "root": roots[0],
        "roots": list(roots),
        "generation": 0,
        "files": files,
        "skipped": dict(skipped),
        "notices": list(notices),
        "tokens": tokens_of(sizes),
        "estimated": list(sizes.estimated),
        "tier": decision.coverage.value,
        "reason": f"{decision.reason}; {how}",
        "hint": decision.hint,
        "kv_bytes": round(decision.tokens * kv_bytes_per_token),
        "indexed_chunks": 0,
    }


def tokens_of(sizes: CoverageSizes) -> dict[str, int | None]:
    return {"full": sizes.full, "skeleton": sizes.skeleton, "map": sizes.map}


def progress_event(progress: CodexProgress) -> Event:
    return {
        "event": "progress",
        "phase": progress.phase,
        "done": progress.done,
        "total": progress.total,
        "rate": round(progress.rate, 1),
        "eta_s": None if progress.eta_s is None else round(progress.eta_s, 1),
    }
