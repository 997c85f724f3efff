"""The floor that the engine computes now, by the names that people know; a floor's own name is a hash."""

from dataclasses import dataclass

from orchestrator.codices.codices import Codices


@dataclass(frozen=True)
class Prefill:
    """`codex` is '' for an identity alone. Tokens are None while a question computes it, not its codex's own prefill."""

    floor: str
    codex: str = ""
    tier: str | None = None
    generation: int | None = None
    done: int | None = None
    total: int | None = None


def prefill_of(shelf: Codices, floor: str) -> Prefill | None:
    """None where nothing is computed: a floor without a name."""
    if not floor:
        return None
    codex = shelf.floors.codex_of(floor)
    standing = shelf.seen(codex)
    current = shelf.floors.of(codex)
    if (
        standing is None or current is None or current.name != floor
    ):  # a generation that grows beside the one that stands
        return Prefill(floor, codex)
    done, total = shelf.floors.progress(codex) or (None, None)
    return Prefill(floor, codex, standing.decision.tier.value, standing.generation.number, done, total)
