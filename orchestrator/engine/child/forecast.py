"""What a prompt would have if it were asked now: from cells, from the tiers, or computed. Pure, from a picture.

    prompt  ├──── vram ────┼── ram ──┼── disk ──┼── computed ──┤

It follows the same searches as who then restores it (`tiers.onward`). What it does not know: how much room there is, which
files are damaged, and what is asked before.
"""

from collections.abc import Iterable

from orchestrator.engine.cache.boundary import Boundary
from orchestrator.engine.cache.path import Path
from orchestrator.engine.checkpoints.lookup import end_of, meeting, onward, reaching
from orchestrator.engine.checkpoints.view import View
from orchestrator.engine.child.cache_view import EMPTY, Picture, Standing, anchored, matched
from orchestrator.engine.messages import Reuse, Tier


def foretold(picture: Picture, pool: str, path: Path, max_tokens: int) -> tuple[tuple[Reuse, ...], int]:
    """Ranges that cover the prompt, and how many tokens of it need no computing by anybody.

    As for the job that it would be: with an answer wanted, the last token is computed in any case.
    """
    limit = len(path.ids) - 1 if max_tokens else len(path.ids)
    root, ids = picture.pools.get(pool, EMPTY), path.ids[:limit]
    standing = (matched if picture.ranges else anchored)(root, ids, path.owner)
    restored = list[Reuse]()
    if standing.depth <= standing.stands:  # else somebody is computing it
        bring = _segments if picture.ranges else _pieces
        restored = bring(picture.kept, path, limit, standing)
    end = restored[-1].end if restored else standing.depth
    return covering(restored, end, len(path.ids)), end if restored else min(standing.depth, standing.stands)


def _segments(kept: View, path: Path, limit: int, standing: Standing) -> list[Reuse]:
    depth, restored = standing.depth, list[Reuse]()
    found = onward(kept.below, path, Boundary(kept.root, 0), depth)
    while depth < limit and found is not None:
        end = min(found.end, limit)
        restored.append(Reuse(depth, end, kept.tier(found.header)))
        depth, found = end, onward(kept.below, path, found.place, end) if end < limit else None
    return restored


def _pieces(kept: View, path: Path, limit: int, standing: Standing) -> list[Reuse]:
    ends, restored = standing.ends, list[Reuse]()
    pieces = reaching(kept.root, kept.below, path, limit)
    while end_of(pieces) > ends[-1]:
        end, joined = meeting(ends, pieces, path.cut)
        restored += [Reuse(piece.start, piece.end, kept.tier(piece)) for piece in joined]
        ends = (*(one for one in ends if one <= end), end_of(joined))
    return restored


def covering(restored: Iterable[Reuse], end: int, length: int) -> tuple[Reuse, ...]:
    """Ranges that cover a prompt: what was restored, what stood before it and between, from `end` on what is computed."""
    parts, at = list[Reuse](), 0
    for part in [*restored, Reuse(end, length, Tier.COMPUTED)]:
        parts += [Reuse(at, part.start, Tier.VRAM), part]
        at = part.end
    return tuple(part for part in parts if part.end > part.start)
