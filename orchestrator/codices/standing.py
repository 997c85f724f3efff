"""A codex as it stands: one generation, in one tier, with what its floor says."""

from dataclasses import dataclass, field, replace

from codex.amendments import Amendment
from codex.catalog.generations import Generation
from codex.citations import Files
from codex.trees.port import TreeState
from formatters.context import CodexView
from orchestrator.prompt.coverage import (
    SHIPPED,
    Coverage,
    CoverageDecision,
    CoverageSettings,
    CoverageSizes,
    FloorRoom,
    available,
)
from orchestrator.prompt.strategy import FloorCoverage as FloorStanding
from orchestrator.wire.lore import CodexState


@dataclass(frozen=True)
class Standing:
    """`tokens` of the codex's block in the tier that stands, `amended` of its log; `files` as they are now."""

    name: str
    roots: tuple[str, ...]
    generation: Generation
    view: CodexView
    sizes: CoverageSizes
    decision: CoverageDecision
    tokens: int
    chunks: int = 0
    log: tuple[Amendment, ...] = ()
    files: Files = field(default_factory=lambda: Files({}))
    notices: tuple[str, ...] = ()
    amended: int = 0
    settings: CoverageSettings = SHIPPED
    rebase_share: float | None = None  # the codex's own, where it names one
    forced: Coverage | None = None
    tree: TreeState | None = None  # of what is on disk, as seen last; None: as when the generation was made

    def floor(self) -> FloorStanding:
        return FloorStanding(self.decision.tier, self.sizes.full, self.tokens)

    def now(self) -> Generation:
        """The generation with the state that the code is in now: a branch may be left without a file being changed."""
        return self.generation if self.tree is None else replace(self.generation, state=self.tree)

    def behind(self, before: "Standing") -> "Standing":
        """This, with what was known of the same generation; a load that told its state anew has seen the disk itself."""
        if before.generation.number != self.generation.number:
            return self
        same = before.generation.state == self.generation.state
        return replace(self, tree=before.tree) if same and self.tree is None else self

    def overfull(self, room: FloorRoom) -> bool:
        """Whether its log has grown so long that no conversation fits behind it."""
        return self.tokens + self.amended > min(available(room, self.settings), room.kv_tokens)

    def behind_first_change(self) -> int:
        """Tokens that a new generation would compute anew, about: all from the first file that the log changed."""
        changed = {entry.path for entry in self.log}
        total, before = 0, None
        for entry in self.generation.entries:
            if before is None and entry.path in changed:
                before = total
            total += entry.size
        kept = total if before is None else before
        return self.amended + round(self.tokens * (1 - kept / total)) if total else self.amended

    def state(self, *, indexing: bool = False) -> CodexState:
        return CodexState(
            name=self.name,
            root=self.roots[0],
            generation=self.generation.number,
            branch=self.now().state.branch,
            revision=self.now().state.revision,
            amendments=tuple(dict.fromkeys(entry.path for entry in self.log)),
            removed=tuple(
                path for path, digest in {one.path: one.digest for one in self.log}.items() if digest is None
            ),
            indexing=indexing,
        )
