"""What two orders of files share: the measure that the laws of order are held to."""

from collections.abc import Sequence


def shared_prefix(old: Sequence[tuple[str, str]], new: Sequence[tuple[str, str]]) -> int:
    """How many leading (path, digest) pairs are equal."""
    count = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        count += 1
    return count
