"""Floors in the engine: which are warm, which are being computed, and how far.

A floor is computed in the background as soon as its codex stands; a question that comes earlier computes it itself or rides
along. Knows floors by name; what stands in them is the shelf's.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from orchestrator.context.assembled import Floor
from orchestrator.engine.client import EngineClient
from orchestrator.engine.messages import Completion, Job, Outcome, Progress, Urgency
from orchestrator.engine.supervisor import EngineUnavailable
from orchestrator.errors import LoreError

log = logging.getLogger("lorekeep.shelf")

OnProgress = Callable[[int, int], None]


@dataclass
class Warming:
    """One floor's prefill: tokens done of all, and who wants to hear."""

    task: asyncio.Task[None]
    done: int = 0
    total: int = 0


class Floors:
    """Which codex has which floor in the engine now."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._floors: dict[str, Floor] = {}
        self._warming: dict[str, Warming] = {}
        self._heard: dict[str, set[OnProgress]] = {}

    def warm(self, codex: str, floor: Floor) -> None:
        """Makes this the codex's floor and computes it in the background; its old one is given up."""
        before = self._floors.get(codex)
        if before is not None and before.name == floor.name and codex in self._warming:
            return
        self._stop(codex)
        self._floors[codex] = floor
        if before is not None and before.name != floor.name:
            self._release(before)
        self._client.put_floor(floor.name, floor.ids, pool=codex)
        task = asyncio.create_task(self._prefill(codex, floor), name=f"floor of {codex}")
        self._warming[codex] = Warming(task, 0, floor.tokens)

    async def stands(self, codex: str, heard: OnProgress) -> None:
        """Waits until the background prefill of a codex has ended, one way or the other; tells how far it is meanwhile."""
        warming = self._warming.get(codex)
        if warming is None:
            return
        listeners = self._heard.setdefault(codex, set())
        listeners.add(heard)
        heard(warming.done, warming.total)
        try:
            await asyncio.wait([warming.task])
        finally:
            listeners.discard(heard)

    def progress(self, codex: str) -> tuple[int, int] | None:
        """Tokens done and in all while a floor is being computed, else None."""
        warming = self._warming.get(codex)
        return (warming.done, warming.total) if warming and not warming.task.done() else None

    def of(self, codex: str) -> Floor | None:
        return self._floors.get(codex)

    def drop(self, codex: str) -> None:
        self._stop(codex)
        floor = self._floors.pop(codex, None)
        if floor is not None:
            self._release(floor)

    async def stop(self) -> None:
        tasks = [warming.task for warming in self._warming.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop(self, codex: str) -> None:
        warming = self._warming.pop(codex, None)
        if warming is not None:
            warming.task.cancel()

    def _release(self, floor: Floor) -> None:
        """Two codices with equal content share a floor: it goes with the last of them."""
        if all(other.name != floor.name for other in self._floors.values()):
            self._client.drop_floor(floor.name)

    async def _prefill(self, codex: str, floor: Floor) -> None:
        job = Job(0, floor.name, b"", owner=0, max_tokens=0, urgency=Urgency.BACKGROUND)
        try:
            async with aclosing(self._client.run(job)) as events:
                async for event in events:
                    if isinstance(event, Progress):
                        self._tell(codex, event.done, event.total)
                    elif isinstance(event, Completion) and event.outcome is not Outcome.DONE:
                        log.warning("the floor of %s was not computed: %s", codex, event.detail or event.reason)
        except (EngineUnavailable, LoreError) as error:
            log.warning("the floor of %s was not computed: %s", codex, error)

    def _tell(self, codex: str, done: int, total: int) -> None:
        warming = self._warming.get(codex)
        if warming is not None:
            warming.done, warming.total = done, total
        for heard in tuple(self._heard.get(codex, ())):
            heard(done, total)
