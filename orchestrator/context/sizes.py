"""Sizes as people say and read them: words, thousands, GiB; and the guess of tokens before anything is tokenised.

Knows no codex and no tokenizer.
"""

import re

from orchestrator.errors import InvalidRequest

WORDS = {
    "tiny": 2_000,
    "small": 8_000,
    "medium": 32_000,
    "large": 100_000,
    "huge": 500_000,
    "massive": 2_000_000,
}
BYTES_PER_TOKEN = 4  # source text, rounded: as long as nothing is counted
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([km]?)")
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}


def tokens_of_size(text: str) -> int:
    """Tokens meant by 'medium', '32k', '1.5M' or '32,000'. InvalidRequest names what is accepted."""
    said = text.strip().lower().replace(",", "").replace("_", "")
    if said in WORDS:
        return WORDS[said]
    number = _NUMBER.fullmatch(said)
    if number is None:
        words = ", ".join(f"{word} {short(tokens)}" for word, tokens in WORDS.items())
        raise InvalidRequest(f"{text!r} is no size", f"say a number of tokens (32000, 32k, 2M) or a word ({words})")
    return int(float(number[1]) * _FACTORS[number[2]])


def estimated_tokens(size: int) -> int:
    """Tokens of `size` bytes of source text, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


def short(tokens: int) -> str:
    """100k, 1.2M: for sentences, where the exact figure stands beside."""
    for limit, factor, unit in ((1_000_000, 1_000_000, "M"), (1_000, 1_000, "k")):
        if tokens >= limit:
            return f"{tokens / factor:.1f}".removesuffix(".0") + unit
    return str(tokens)


def gib(size: float) -> str:
    """Bytes as GiB with one digit, or MiB below one."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
