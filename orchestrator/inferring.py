"""The engine behind the port through which answers are inferred.

A floor's ids cross once, the tail with each job. What the engine refuses becomes the error a user is told; a plan made
under an old grant is handed in again under the present one.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from orchestrator.context.assembled import Floor
from orchestrator.context.inference import InferenceEvent, InferenceRequest
from orchestrator.engine.client import EngineClient
from orchestrator.engine.messages import Completion, Grant, Ids, Job, Outcome, Reason, Urgency
from orchestrator.engine.supervisor import EngineUnavailable
from orchestrator.errors import EngineFailed, InvalidRequest, LoreError, OverBudget

STALE_TRIES = 3


class EngineInference:
    """`grant` gives the one in force."""

    def __init__(self, client: EngineClient, grant: Callable[[], Grant]) -> None:
        self._client = client
        self._grant = grant

    async def infer(self, request: InferenceRequest) -> AsyncIterator[InferenceEvent]:
        prompt = request.prompt
        self._client.put_floor(prompt.floor.name, prompt.floor.ids)
        for _ in range(STALE_TRIES):
            job = Job(
                ticket=0,
                floor=prompt.floor.name,
                tail=prompt.tail,
                owner=request.owner,
                max_tokens=request.max_tokens,
                sampling=request.sampling,
                stop=request.stop,
                urgency=request.urgency,
                grant=self._grant().number,
            )
            stale = None
            try:
                async with aclosing(self._client.run(job)) as events:
                    async for event in events:
                        if isinstance(event, Completion) and event.outcome in (Outcome.REFUSED, Outcome.FAILED):
                            stale = fault_of(event)
                            break
                        yield event
            except EngineUnavailable as error:
                raise EngineFailed(str(error), "see `lore status`", None if error.broken else 1.0) from error
            if stale is None:
                return
            if not isinstance(stale, StaleGrant):
                raise stale
        raise OverBudget("the memory for this question was taken by others three times in a row", "ask again later")

    async def prefill(self, floor: Floor, urgency: Urgency = Urgency.BACKGROUND) -> AsyncIterator[InferenceEvent]:
        """Computes a floor and generates nothing. Raises like `infer`."""
        self._client.put_floor(floor.name, floor.ids)
        job = Job(0, floor.name, b"", owner=0, max_tokens=0, urgency=urgency, grant=0)
        try:
            async with aclosing(self._client.run(job)) as events:
                async for event in events:
                    if isinstance(event, Completion) and event.outcome in (Outcome.REFUSED, Outcome.FAILED):
                        raise fault_of(event)
                    yield event
        except EngineUnavailable as error:
            raise EngineFailed(str(error), "see `lore status`", None if error.broken else 1.0) from error

    async def encode(self, texts: list[str], control: bool) -> list[Ids]:
        """Ids of texts. EngineFailed when there is no engine to ask."""
        try:
            return [ids.tobytes() for ids in await self._client.encode(texts, control=control)]
        except EngineUnavailable as error:
            raise EngineFailed(str(error), "see `lore status`", None if error.broken else 1.0) from error


class StaleGrant(LoreError):
    """Planned under a grant that is no longer in force; plan again."""


def fault_of(completion: Completion) -> LoreError:
    """What a user is told of a ticket that was refused or failed."""
    if completion.reason is Reason.STALE:
        return StaleGrant(completion.detail)
    if completion.reason in (Reason.WINDOW, Reason.CELLS):
        return OverBudget(completion.detail, "ask about less, start a new session, or lower --max-tokens")
    if completion.reason is Reason.SCHEMA:
        return InvalidRequest(completion.detail, "simplify the JSON schema")
    return EngineFailed(completion.detail or "the engine failed", "ask again", retry_after=1.0)
