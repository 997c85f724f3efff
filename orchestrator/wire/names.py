"""Names as people and clients write them: of codices and of models."""

from collections.abc import Sequence

ANY_CODEX = "lore"  # the model id that leaves the choice to the daemon
CODEX_PREFIX = "lore/"
LATEST = ":latest"  # clients made for ollama put it behind a name


def spelled(asked: str, known: Sequence[str]) -> str | None:
    """The one of the known names that is meant: the same, else the only one that differs in case alone, else the only one
    that begins so."""
    if not asked or asked in known:
        return asked or None
    folded = asked.casefold()
    same = [name for name in known if name.casefold() == folded]
    found = set(same) or {name for name in known if name.casefold().startswith(folded)}
    return found.pop() if len(found) == 1 else None


def without_tag(model: str) -> str:
    """A model id as clients made for ollama write it, without what they put behind it."""
    return model[: -len(LATEST)] if model.casefold().endswith(LATEST) else model
