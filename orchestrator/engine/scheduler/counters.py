"""What the engine has done since it started, in tokens and steps."""

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.engine.messages import Reuse, Tier


@dataclass
class Counters:
    """`steps` are calls of the backend; `drafts` those of them that verified drafts, counted once an answer."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    disk_tokens: int = 0  # of the cached ones: restored from checkpoints
    computed_tokens: int = 0
    generated_tokens: int = 0
    evicted_tokens: int = 0
    drafts: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    pool_failures: int = 0  # made anew after a step that failed
    broken_pools: int = 0  # thrown away because a law of theirs was broken

    def admitted(self, parts: Iterable[Reuse]) -> None:
        """Takes a prompt in: `parts` cover it without gaps."""
        for part in parts:
            size = part.end - part.start
            self.prompt_tokens += size
            self.cached_tokens += size if part.tier is not Tier.COMPUTED else 0
            self.disk_tokens += size if part.tier is Tier.DISK else 0
