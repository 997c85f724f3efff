"""Whose a floor is: of a codex's generation in a tier, under one version of an identity. Pure."""

from dataclasses import dataclass

from formatters.context import CodexView, IdentityView


@dataclass(frozen=True)
class Place:
    """`codex` is '' for the bare identity, whose generation is 0 and whose tier is ''."""

    codex: str
    generation: int
    tier: str
    identity: IdentityView

    @staticmethod
    def of(view: CodexView | None, identity: IdentityView) -> "Place":
        if view is None:
            return Place("", 0, "", identity)
        return Place(view.name, view.generation, view.tier, identity)

    @property
    def pool(self) -> str:
        """`IDENTITY@VERSION/CODEX`. Generations of a codex under one version share a pool: the next is a branch of the
        last. Versions of an identity differ at the prompt's head and share nothing: each has a pool, freed with it."""
        return f"{self.identity.name}@{self.identity.version}/{self.codex}"

    def replaces(self, other: "Place") -> bool:
        """Whether nobody asks at the other one any more, once a floor stands here and is to stay."""
        mine, its = self.identity, other.identity
        of_other_version = its.name == mine.name and its.version != mine.version
        return other.codex == self.codex and (other.generation != self.generation or of_other_version)


def parts(pool: str) -> tuple[str, str, str]:
    """The identity, its version and the codex of a pool's name; versions hold neither '@' nor '/'."""
    whole, _, codex = pool.partition("/")
    name, _, version = whole.rpartition("@")
    return name, version, codex
