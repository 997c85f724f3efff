"""A codex as it stands: one generation, in one tier, with what its floor says."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from codex.amendments import Amendment
from codex.generations import Generation
from formatters.context import CodexView
from orchestrator.context.strategy import Standing as FloorStanding
from orchestrator.context.tier import TierDecision, TierSizes
from orchestrator.wire.lore import CodexState


@dataclass(frozen=True)
class Standing:
    """`tokens` of the codex's block in the tier that stands; `lines` by path, for citations."""

    name: str
    roots: tuple[str, ...]
    generation: Generation
    view: CodexView
    sizes: TierSizes
    decision: TierDecision
    tokens: int
    chunks: int = 0
    log: tuple[Amendment, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    def floor(self) -> FloorStanding:
        return FloorStanding(self.decision.tier, self.sizes.full, self.tokens)

    def state(self, *, indexing: bool = False) -> CodexState:
        return CodexState(
            name=self.name,
            root=self.roots[0],
            generation=self.generation.number,
            branch=self.generation.state.branch,
            revision=self.generation.state.revision,
            amendments=tuple(dict.fromkeys(entry.path for entry in self.log)),
            indexing=indexing,
        )
