"""Numbers between bounds as regular expressions. Knows no grammar and no JSON schema.

Whole numbers have at most 16 digits and fractions 15, as in llama.cpp's own rules; numbers with bounds have no exponent.
"""

from orchestrator.engine.backend import SchemaRefused

MOST = 10**16 - 1
FRACTION = "[0-9]{1,15}"


def integers(low: int, high: int) -> str:
    """Those from `low` to `high`, both included."""
    check(low, high)
    found = []
    if low < 0:
        found.append("-" + digits(max(1, -high), -low))
    if high >= 0:
        found.append(digits(max(0, low), high))
    return "|".join(found)


def numbers(low: int, high: int, above: bool, below: bool) -> str:
    """Those between; `above`: `low` itself is none of them, `below`: `high` itself is none."""
    check(low, high)
    found = []
    if low < 0:
        nearest = max(0, -high)
        found += [f"-{one}" for one in _positive(nearest, -low, below if high < 0 else True, above)]
    if high >= 0:
        found += _positive(max(0, low), high, above and low >= 0, below)
    if not found:
        raise SchemaRefused("no number is within the JSON schema's bounds")
    return "|".join(found)


def check(low: int, high: int) -> None:
    if max(abs(low), abs(high)) > MOST:
        raise SchemaRefused("minimum and maximum are enforced for numbers of at most 16 digits")
    if low > high:
        raise SchemaRefused("no number is within the JSON schema's bounds")


def _positive(low: int, high: int, above: bool, below: bool) -> list[str]:
    first, found = low + above, []
    if first < high:
        found.append(rf"{digits(first, high - 1)}(?:\.{FRACTION})?")
    if above and low < high:
        found.append(rf"{low}\.0{{0,7}}[1-9][0-9]{{0,7}}")
    if not below and first <= high:
        found.append(rf"{high}(?:\.0{{1,15}})?")
    return found


def digits(low: int, high: int) -> str:
    """Numerals from `low` to `high`, not negative, without leading zeros."""
    lengths = range(len(str(low)), len(str(high)) + 1)
    spans = ((max(low, 10 ** (n - 1) if n > 1 else 0), min(high, 10**n - 1)) for n in lengths)
    return "(?:" + "|".join(_alike(str(first), str(last)) for first, last in spans) + ")"


def _alike(low: str, high: str) -> str:
    """Numerals between two that are as long."""
    if not low:
        return ""
    if low[0] == high[0]:
        return low[0] + _alike(low[1:], high[1:])
    rest = len(low) - 1
    if low[1:] == "0" * rest and high[1:] == "9" * rest:
        return f"[{low[0]}-{high[0]}][0-9]{{{rest}}}"
    between = [f"[{int(low[0]) + 1}-{int(high[0]) - 1}][0-9]{{{rest}}}"] if int(high[0]) - int(low[0]) > 1 else []
    ends = [low[0] + _alike(low[1:], "9" * rest), high[0] + _alike("0" * rest, high[1:])]
    return "(?:" + "|".join([*ends, *between]) + ")"
