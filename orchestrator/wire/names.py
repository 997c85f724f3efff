"""Names as people and clients write them: of codices and of models.

A codex of the daemon's owner has a plain name. One of another user is NAME~UID: two users may both have a `work`, and
neither learns of the other's by trying the name. `~` stands in no name that a user can choose.
"""

from collections.abc import Iterable, Sequence

ANY_CODEX = "lore"  # the model id that leaves the choice to the daemon
CODEX_PREFIX = "lore/"
OWNED = "~"
LATEST = ":latest"  # clients made for ollama put it behind a name


def spelled(asked: str, known: Sequence[str]) -> str | None:
    """The one of the known names that is meant: the same, else the only one that is so without its owner, else the only one
    that differs in case alone, else the only one that begins so."""
    whole = in_full(asked, known)
    if not asked or whole is not None:
        return whole
    folded = asked.casefold()
    same = [name for name in known if name.casefold() == folded]
    found = set(same) or {name for name in known if name.casefold().startswith(folded)}
    return found.pop() if len(found) == 1 else None


def in_full(asked: str, known: Iterable[str]) -> str | None:
    """The name itself, else the only one that is so without its owner."""
    names = set(known)
    if asked in names:
        return asked
    found = {name for name in names if short(name) == asked}
    return found.pop() if len(found) == 1 else None


def owned(name: str, uid: int) -> str:
    """The whole name of a user's codex."""
    return f"{name}{OWNED}{uid}"


def short(name: str) -> str:
    """A codex's name without its owner."""
    return name.partition(OWNED)[0]


def owner_of(name: str) -> int | None:
    """The uid that a codex belongs to; None: the daemon's owner."""
    uid = name.rpartition(OWNED)[2] if OWNED in name else ""
    return int(uid) if uid.isdecimal() else None


def without_tag(model: str) -> str:
    """A model id as clients made for ollama write it, without what they put behind it."""
    return model[: -len(LATEST)] if model.casefold().endswith(LATEST) else model
