"""What changed on disk, taken into a codex as it stands: its log grows, its archive follows."""

import asyncio
from dataclasses import dataclass, replace

from codex.library import Library
from orchestrator.codices.changed import changed_parts
from orchestrator.codices.faults import mended, translated
from orchestrator.codices.raising import Raising, tokens_of
from orchestrator.codices.standing import Standing


@dataclass(frozen=True)
class TakenIn:
    """The codex with what was found, and how many entries of its log are new."""

    standing: Standing
    new: int


async def taken_in(library: Library, raising: Raising | None, name: str, standing: Standing | None) -> TakenIn | None:
    """None where it does not stand: what changed is in its log for when it does. The codex's `disk` is held meanwhile.

    Raises CodexError, Conflict while another process loads it.
    """
    number = None if standing is None else standing.generation.number
    with translated():
        followed = await mended(
            lambda: library.follow(
                name, number, count=lambda text: tokens_of(text, raising), changed_definitions=changed_parts
            )
        )
    if standing is None or raising is None:
        return None
    with translated():
        chunks = await asyncio.to_thread(raising.chunks, name)
    now = replace(standing, tree=followed.changes.state)
    if not followed.new:
        return TakenIn(now, 0)
    return TakenIn(await raising.amended(replace(now, chunks=chunks), followed.log), followed.new)
