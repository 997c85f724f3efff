"""The condensation ritual: before a question is inferred, the model writes the gist of the turns that its prompt lost.

    the turns that fall, as the last prompt held them │ "summarise" ──▶ a gist ──▶ has it all that must survive? ──▶ State
    └───────────── in the cache already ──────────────┘                        └─ no: the extract stays

Those turns are the beginning of the conversation, so all but the last words of this prompt are cached. The extract that
`prompt.budget` put into the question is replaced only by a gist that is complete, in time, and fits.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from orchestrator.answering.inference import Inference, InferenceEvent
from orchestrator.answering.parsing import AnswerParser
from orchestrator.answering.preparing import Preparer
from orchestrator.answering.question import PreparedQuestion
from orchestrator.answering.running import job_of
from orchestrator.codices.floors import Floors
from orchestrator.engine.messages import AnswerDelta, Completion, Reason, Sampling
from orchestrator.errors import LoreError
from orchestrator.prompt.budget import Fallen, within_reach
from orchestrator.prompt.composing import Composed
from orchestrator.prompt.gist import SUMMARISE, exchanges, lost, survivors
from orchestrator.service import Text

WORDS = 0.6  # of a token; asked for, so that most gists end before they are cut
HEADING = 16  # tokens of the line above a gist
PRESSED = frozenset({"high", "critical"})  # levels at which nothing is computed that need not be


class WrittenGist(NamedTuple):
    """`prompt`: tokens that the model was given for it, and how many of them were cached."""

    text: str
    prompt: int
    cached: int


@dataclass(frozen=True)
class Ritual:
    """Asks the model that answers, under the question's own floor."""

    preparer: Preparer
    inference: Inference
    floors: Floors

    def is_due(self, prepared: PreparedQuestion) -> bool:
        """Whether turns fall, and the model may be asked for their gist."""
        claims, level = self.preparer.claims, self.preparer.machine.levels.memory
        return prepared.within.fallen is not None and bool(claims.gist_s) and level not in PRESSED

    async def condensed(self, prepared: PreparedQuestion) -> PreparedQuestion:
        """The question that it is due for with the model's gist; as it was where that is late, may not be used, or could
        not be made."""
        fallen = prepared.within.fallen
        assert fallen is not None, "it is not due"
        try:
            async with asyncio.timeout(self.preparer.claims.gist_s):
                gist = await self._written(prepared, fallen)
        except (TimeoutError, LoreError):  # the question itself meets a fault that lasts, and says so
            return prepared
        wanted = survivors("\n".join(one.asked for one in exchanges(fallen.state.turns)))
        if gist is None or not gist.text or lost(wanted, gist.text):
            return prepared
        return await self.preparer.with_gist(prepared, *gist)

    async def _written(self, prepared: PreparedQuestion, fallen: Fallen) -> WrittenGist | None:
        """What the model says, without thoughts; None where it was cut, or there is no room for it. Raises LoreError."""
        composed = await self._composed(prepared, fallen)
        if composed is None:
            return None
        most, text = fallen.tokens - HEADING, list[str]()
        job = replace(job_of(prepared.job, composed), max_tokens=most, sampling=Sampling(temperature=0.0))
        with self.floors.held(composed.assembled.floor, prepared.floor_key):
            async with aclosing(cast(AsyncGenerator[InferenceEvent], self.inference.infer(job))) as events:
                async for event in events:
                    if isinstance(event, AnswerDelta):
                        text.append(event.text)
                    if isinstance(event, Completion) and event.reason is not Reason.LENGTH:
                        said = without_thoughts("".join(text), thinking=prepared.chat_model.opens_thought)
                        return WrittenGist(said, event.prompt, event.cached)
        return None

    async def _composed(self, prepared: PreparedQuestion, fallen: Fallen) -> Composed | None:
        """The turns as the last prompt held them, and the request behind them; None where no prompt can have held them."""
        most = fallen.tokens - HEADING
        query = SUMMARISE.format(words=round(WORDS * most))
        around = prepared.conversation.environment or prepared.turn.environment
        turn = prepared.turn.model_copy(update={"state": fallen.state, "environment": around, "query": query})
        limits = replace(self.preparer.limits(prepared), tokens=prepared.grant.window - most, depth=None)
        if most < HEADING or within_reach(turn, limits).state.gone > fallen.state.gone:
            return None
        composed = await prepared.chat_model.composer.compose(turn, think=False)
        return composed if composed.assembled.tokens <= limits.tokens else None


def without_thoughts(text: str, *, thinking: bool) -> str:
    parser = AnswerParser(thinking=thinking)
    parts = [*parser.feed(text), *parser.end()]
    return "".join(part.delta for part in parts if isinstance(part, Text)).strip()
