"""A codex as it is now, and the key of a floor. Pure.

`CodexState` is one generation in one coverage, with what its floor says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from codex.catalog.generations import Generation
from codex.citations import Files
from codex.following.amendments import Amendment
from codex.trees.port import TreeState
from formatters.context import CodexView, IdentityView
from orchestrator.prompt.coverage import (
    DEFAULT_COVERAGE,
    Coverage,
    CoverageDecision,
    CoverageSettings,
    CoverageSizes,
    FloorRoom,
    available,
)
from orchestrator.prompt.strategy import FloorCoverage
from orchestrator.wire.answers import CodexInAnswer


@dataclass(frozen=True)
class CodexState:
    """`tokens` of the codex's block in its coverage, `amended` of its log; `digests` and `files` with the log."""

    name: str
    roots: tuple[str, ...]
    generation: Generation
    view: CodexView
    sizes: CoverageSizes
    decision: CoverageDecision
    tokens: int
    chunks: int = 0
    log: tuple[Amendment, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    files: Files = field(default_factory=lambda: Files({}))
    notices: tuple[str, ...] = ()
    amended: int = 0
    settings: CoverageSettings = DEFAULT_COVERAGE
    rebase_share: float | None = None  # the codex's own, where it names one
    forced: Coverage | None = None
    tree: TreeState | None = None  # of what is on disk, as seen last; None: as when the generation was made

    @property
    def tokens_now(self) -> int:
        """Of its block with the changes behind it."""
        return self.tokens + self.amended

    @property
    def limited(self) -> str:
        """What keeps the whole of it out of its floor, and what would help; '' where nothing does but what was wished."""
        if self.decision.coverage is Coverage.FULL or self.forced is not None:
            return ""
        return "; ".join(filter(None, (f"{self.name}: {self.decision.reason}", self.decision.hint)))

    def floor_coverage(self) -> FloorCoverage:
        return FloorCoverage(self.decision.coverage, self.sizes.full + self.amended, self.tokens_now)

    def generation_now(self) -> Generation:
        """The generation with the state that the code is in now: a branch may be left without a file being changed."""
        return self.generation if self.tree is None else replace(self.generation, state=self.tree)

    def behind(self, before: "CodexState") -> "CodexState":
        """This, with what was known of the same generation; a load that found another state has seen the disk itself."""
        if before.generation.number != self.generation.number:
            return self
        same = before.generation.state == self.generation.state
        return replace(self, tree=before.tree) if same and self.tree is None else self

    def most_tokens(self, room: FloorRoom) -> int:
        """That its floor and its log may have, so that a conversation fits behind them."""
        return min(available(room, self.settings), room.kv_tokens)

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

    def in_answer(self, *, indexing: bool = False) -> CodexInAnswer:
        return CodexInAnswer(
            name=self.name,
            root=self.roots[0],
            generation=self.generation.number,
            branch=self.generation_now().state.branch,
            revision=self.generation_now().state.revision,
            amendments=tuple(dict.fromkeys(entry.path for entry in self.log)),
            removed=tuple(
                path for path, digest in {one.path: one.digest for one in self.log}.items() if digest is None
            ),
            indexing=indexing,
        )


@dataclass(frozen=True)
class FloorKey:
    """`codex` is '' for the bare identity, whose generation is 0 and whose coverage is ''."""

    codex: str
    generation: int
    tier: str
    identity: IdentityView

    @staticmethod
    def of(view: CodexView | None, identity: IdentityView) -> "FloorKey":
        if view is None:
            return FloorKey("", 0, "", identity)
        return FloorKey(view.name, view.generation, view.tier, identity)

    @property
    def pool(self) -> str:
        """`IDENTITY@VERSION/CODEX`. Generations of a codex under one version share a pool: the next is a branch of the
        last. Versions of an identity differ at the prompt's head and share nothing: each has a pool, freed with it."""
        return f"{self.identity.name}@{self.identity.version}/{self.codex}"

    def replaces(self, other: "FloorKey") -> bool:
        """Whether nobody asks at the other one any more, once this one is resident and is to stay."""
        mine, its = self.identity, other.identity
        of_other_version = its.name == mine.name and its.version != mine.version
        return other.codex == self.codex and (other.generation != self.generation or of_other_version)


def pool_parts(pool: str) -> tuple[str, str, str]:
    """The identity, its version and the codex of a pool's name; versions hold neither '@' nor '/'."""
    whole, _, codex = pool.partition("/")
    name, _, version = whole.rpartition("@")
    return name, version, codex
