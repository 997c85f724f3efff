"""What to name instead of a name that nothing has. Pure."""

import difflib
from collections.abc import Sequence

NAMED_AT_MOST = 10  # more names are no help to read


def instead(name: str, known: Sequence[str], none: str, lists: str) -> str:
    """All of them, the nearest first; of many only the nearest, and what `lists` all. `none`: said where there are none."""
    if not known:
        return none
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.0 if len(known) > NAMED_AT_MOST else 0.6)
    if len(known) > NAMED_AT_MOST:
        return f"the nearest of {len(known):,}: {', '.join(near)}; {lists} shows all"
    return f"there are: {', '.join(dict.fromkeys((*near, *known)))}"
