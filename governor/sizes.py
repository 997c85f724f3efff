"""Bytes and tokens as readable text."""

from governor.settings import GIB, KIB, MIB


def size(count: float) -> str:
    """12.2 GiB, 340 MiB, 12 KiB."""
    if count >= GIB:
        return f"{count / GIB:.1f} GiB"
    return f"{count / MIB:.0f} MiB" if count >= MIB else f"{count / KIB:.0f} KiB"


def short_count(tokens: int) -> str:
    """2.5M, 100k, 8.2k, 900."""
    if tokens < 1000:
        return str(tokens)
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f}".removesuffix(".0") + "M"
    return f"{tokens / 1000:.1f}".removesuffix(".0") + "k" if tokens < 10_000 else f"{tokens / 1000:.0f}k"
