"""The tiers below `full`, written from a codex's documents: the skeleton with its hot bodies, and the map.

Synchronous and for a worker thread: parsing a large codebase takes seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from codex.centrality import centrality
from codex.documents import Document
from codex.repomap import repo_map
from codex.symbols import Outline, outline
from codex.tiers import Heat, hot, skeleton
from formatters.context import CodexPiece
from orchestrator.context.tier import FloorTier, Room, TierDecision, TierSettings, share

Count = Callable[[Sequence[str]], list[int]]
HEADING = 12  # tokens that a file's heading line takes beside its text, about


@dataclass(frozen=True)
class Drafts:
    """What the lower tiers would hold, and what they are made of; sizes are None where one is not made."""

    documents: Sequence[Document] = ()
    outlines: Mapping[str, Outline] = field(default_factory=dict)
    skeletons: Mapping[str, str] = field(default_factory=dict)
    map_text: str = ""
    skeleton_tokens: int | None = None
    map_tokens: int | None = None


def drafts(documents: Sequence[Document], room: Room, count: Count, settings: TierSettings) -> Drafts:
    """Both lower tiers, counted. The map is made for the share of the window that it may take."""
    outlines = {one.path: outline(one) for one in documents}
    skeletons = {one.path: skeleton(one, outlines[one.path]) for one in documents}
    budget = min(share(room.window, settings.map_share), room.kv_tokens)
    map_text = repo_map(outlines, max(0, budget - HEADING), count) if budget > HEADING else ""
    heads = HEADING * len(documents)
    return Drafts(
        documents,
        outlines,
        skeletons,
        map_text,
        sum(count(list(skeletons.values()))) + heads,
        count([map_text])[0] + HEADING if map_text else None,
    )


def pieces(made: Drafts, decision: TierDecision, count: Count) -> tuple[CodexPiece, ...]:
    """What stands in the floor for a tier below `full`, in the generation's order."""
    if decision.tier is FloorTier.MAP and made.map_text:
        return (CodexPiece(path="repository map", text=made.map_text, kind="map"),)
    if decision.tier is FloorTier.SKELETON:
        chosen = set(hot(heats(made, count), decision.hot_tokens))
        return tuple(
            CodexPiece(path=one.path, text=one.text)
            if one.path in chosen
            else CodexPiece(path=one.path, text=made.skeletons[one.path], kind="skeleton")
            for one in made.documents
        )
    return ()


def heats(made: Drafts, count: Count) -> list[Heat]:
    """How much each file's whole body has to say for itself."""
    ranks = centrality(made.outlines)
    bodies = count([one.text for one in made.documents])
    shown = count([made.skeletons[one.path] for one in made.documents])
    return [
        Heat(one.path, max(0, body - skeleton_tokens), centrality=ranks.get(one.path, 0.0))
        for one, body, skeleton_tokens in zip(made.documents, bodies, shown, strict=True)
    ]
