"""What the engine has done since it started, in tokens and steps."""

from dataclasses import dataclass


@dataclass
class Counters:
    """`steps` are calls of the backend; `drafts` those of them that verified drafts, counted once an answer."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    evicted_tokens: int = 0
    padded_tokens: int = 0
    drafts: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
