"""When a turn of embedding in the background has ended."""

from functools import wraps
from typing import Any

from support.waiting import Told

from orchestrator.model.meaning import Filling


def told_turns(filling: Filling, turns: list[str] | None = None) -> Told:
    """Tells of the end of each of its turns; `turns` gets the codices' names."""
    told, turn = Told(), filling._turn

    @wraps(turn)
    async def telling(name: str, embedder: Any) -> bool:
        try:
            return await turn(name, embedder)
        finally:
            if turns is not None:
                turns.append(name)
            told.tell()

    filling._turn = telling  # type: ignore[method-assign]
    return told
